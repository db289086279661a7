"""All targets by name, and the context that some need around their examples."""

from tests.fuzz import answers, blocks, calls, journals, links, texts

TARGETS = {
    **answers.TARGETS,
    **blocks.TARGETS,
    **calls.TARGETS,
    **journals.TARGETS,
    **links.TARGETS,
    **texts.TARGETS,
}
AROUND = calls.AROUND
