"""Where in zero.py to look for what a judge has found."""

from lab.checks.common.look import Look, line_of

SHARE = r"\[.params.\]\s*="  # where a group gets its share


def merged(look: Look) -> str:
    """Where the groups are replaced by others, or what is in them."""
    return look(
        r"param_groups(\[:\])? ?=(?!=)",
        r"param_groups\.|add_param_group",
        r"type\(optimizer\)",
        SHARE,
        r"^for .*group",
    )


def too_late(look: Look) -> str:
    """Where step() steps, if it hands out before or not at all; or else where it hands out."""
    stepped, handed = look(r"(optimizer|super\(\))\.step\("), look(r"hand_out")
    return handed if 0 < line_of(stepped) < line_of(handed) else stepped
