"""Where in zero.py to look for what a judge has found."""

from lab.checks.common.look import Look, line_of
from lab.checks.common.look_around import in_helpers

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


def lost_at(look: Look) -> str:
    """Where __init__() throws states away; where it names them, or else where a group gets its share."""
    return look(r"\.state\b.*clear|\.state\b\S* ?=(?!=)", r"clear\(|del |\.pop|popitem", r"\.state\b", SHARE)


def kept_parameters(look: Look, fewer: bool) -> str:
    """What zero_grad() goes by: where self.parameters became fewer; or else its own line."""
    changed = r"self\.parameters(\[.*\])? ?=(?!=)|self\.parameters\.(remove|pop|clear)|del self\.parameters"
    place = look(changed, last=True) if fewer else ""
    return place if line_of(place) else look.into("ZeroOptimizer.zero_grad")(r"grad")


def moved_on(look: Look) -> str:
    """Where hand_out() goes on to the next part, or cuts the parts out."""
    return look(r"\+=", r"accumulate|cumsum", r"split|chunk|narrow", r"\[[^\]]*:", r"copy_")


def copied_into(look: Look) -> str:
    """Where hand_out() writes to what flatten() or the like has made, in a line or under a name of its own."""
    made = r"(flatten|reshape|ravel|contiguous|clone|to)\("
    return look(rf"{made}.*\)(\.(copy_|set_|data)|\[.*\] ?=)", rf"{made}", r"copy_", last=True)


def buffer_at(look: Look) -> str:
    """Where hand_out() or a helper makes what comes in, of a type that nobody asked for; or where it is sent."""
    made = r"\b(empty|zeros|ones|full)\((?!.*dtype)"
    other = r"\.(float|half|double|bfloat16|to|type)\(|float32"
    return in_helpers(look, made) or in_helpers(look, other) or look(r"empty|zeros", r"broadcast")
