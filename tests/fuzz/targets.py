"""All targets by name."""

from tests.fuzz import answers, blocks, calls, journals, texts

TARGETS = {
    **answers.TARGETS,
    **blocks.TARGETS,
    **calls.TARGETS,
    **journals.TARGETS,
    **texts.TARGETS,
}
