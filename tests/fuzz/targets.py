"""All targets by name, and what some need around their examples."""

from tests.fuzz import answers, blocks, calls, journals, texts

TARGETS = {
    **answers.TARGETS,
    **blocks.TARGETS,
    **calls.TARGETS,
    **journals.TARGETS,
    **texts.TARGETS,
}
AROUND = calls.AROUND
