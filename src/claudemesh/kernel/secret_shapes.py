"""Which runs of characters are credentials by their shape alone, whatever stands around them.

Issuers mark what they issue: a prefix, a length, an alphabet. Every row below is one such mark, behind a literal
that is looked for first, since that costs next to nothing. No pattern can be made to look at a character more than
a bounded number of times: what repeats is bounded, or begins where no character of its own kind stands before it.

A long run without a mark is judged by how it changes between small letters, capitals and digits: words, paths,
identifiers and numbers in hexadecimal do so seldom, and what was rolled with dice does so all the time.
"""

import re
from typing import Final, NamedTuple

# No whitespace is in any of these, and none is shorter.
SHORTEST: Final = 16

_EDGE = r"(?<![A-Za-z0-9])"
_TAIL = r"(?![A-Za-z0-9])"


class Shape(NamedTuple):
    kind: str
    literals: tuple[str, ...]  # one of these is in every text that has it
    pattern: re.Pattern[str]


def _shape(kind: str, literals: str, pattern: str, edge: str = _EDGE) -> Shape:
    return Shape(kind, tuple(literals.split()), re.compile(edge + pattern))


SHAPES: Final = (
    _shape("jwt", "eyJ", r"eyJ[A-Za-z0-9_-]{8,}=*\.[A-Za-z0-9_-]{4,}", r"(?<![A-Za-z0-9_-])"),
    _shape("aws_access_key", "AKIA ASIA ABIA ACCA A3T", r"(?:A3T[A-Z0-9]|AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}" + _TAIL),
    _shape("github_token", "ghp_ gho_ ghu_ ghs_ ghr_", r"gh[pousr]_[A-Za-z0-9_]{36}"),
    _shape("github_token", "github_pat_", r"github_pat_[A-Za-z0-9_]{22}"),
    _shape("gitlab_token", "gl", r"gl(?:pat|dt|ft|soat|rt|cbt|imt|ptt|agent|oas|ffct)-[A-Za-z0-9_-]{20}"),
    _shape("gitlab_token", "GR1348941", r"GR1348941[A-Za-z0-9_-]{20}"),
    _shape("slack_token", "xox xapp-", r"(?:xox[a-z](?:\.xox[a-z])?|xapp)-[A-Za-z0-9-]{10}"),
    _shape(
        "slack_webhook", "hooks.slack.com", r"hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9_/]{16}"
    ),
    _shape("stripe_key", "k_live_ k_test_ whsec_", r"(?:[rsp]k_(?:live|test)|whsec)_[0-9A-Za-z]{16}"),
    _shape("anthropic_key", "sk-ant-", r"sk-ant-[A-Za-z0-9_-]{16}"),
    _shape("openai_key", "T3BlbkFJ", r"T3BlbkFJ[A-Za-z0-9]{16}", ""),
    _shape("openai_key", "sk-", r"sk-(?:[A-Za-z0-9]{20}|(?:proj|svcacct|admin|or)-[A-Za-z0-9_-]{20})"),
    _shape("google_api_key", "AIza", r"AIza[0-9A-Za-z_-]{35}"),
    _shape("google_oauth", "GOCSPX- ya29.", r"(?:GOCSPX-|ya29\.)[0-9A-Za-z_-]{20}"),
    _shape("npm_token", "npm_", r"npm_[A-Za-z0-9]{30}"),
    _shape("npm_token", ":_authToken=", r":_auth(?:Token)?=[A-Za-z0-9_-]{16}", ""),
    _shape("pypi_token", "pypi-", r"pypi-AgE[A-Za-z0-9_-]{20}"),
    _shape("twilio_key", "SK AC", r"(?:SK|AC)[a-z0-9]{32}" + _TAIL),
    _shape("sendgrid_key", "SG.", r"SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{16}"),
    _shape("discord_token", ".", r"[MNO][A-Za-z0-9_-]{23,25}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27}"),
    _shape("discord_webhook", "/api/webhooks/", r"/api/webhooks/[0-9]{15,20}/[A-Za-z0-9_-]{30}", ""),
    _shape("telegram_token", ":", r"[0-9]{8,10}:[0-9A-Za-z_-]{35}(?![0-9A-Za-z_-])"),
    _shape("mailchimp_key", "-us", r"[0-9a-z]{32}-us[0-9]{1,2}" + _TAIL),
    _shape("mailgun_key", "key-", r"key-[0-9a-f]{32}" + _TAIL),
    _shape("square_token", "sq0 EAAA", r"(?:sq0[a-z]{3}-[0-9A-Za-z\\_-]{22}|EAAA[0-9A-Za-z_-]{60}" + _TAIL + ")"),
    _shape("artifactory_token", "AKC", r"AKC[a-zA-Z0-9]{10,128}" + _TAIL),
    _shape("artifactory_password", "AP", r"AP[0-9A-F](?=[A-Za-z]{0,12}[0-9])[a-zA-Z0-9]{13,128}" + _TAIL),
    _shape("azure_key", "AccountKey= SharedAccess", r"(?:AccountKey|SharedAccessKey)=[A-Za-z0-9+/]{40}", ""),
    _shape("azure_signature", "sig=", r"[?&]sig=[A-Za-z0-9%+/]{40}", ""),
    _shape("azure_client_secret", "Q~", r"[A-Za-z0-9_.~-]{3}[0-9]Q~[A-Za-z0-9_.~-]{31,34}", ""),
    _shape("softlayer_key", "softlayer.com/soap/", r"softlayer\.com/soap/v3(?:\.1)?/[a-z0-9]{64}", ""),
    _shape("digitalocean_token", "_v1_", r"do[opr]_v1_[a-f0-9]{64}"),
    _shape("shopify_token", "shp", r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}"),
    _shape("hashicorp_token", "hv", r"hv[sbr]\.[A-Za-z0-9_-]{24}"),
    _shape("terraform_token", ".atlasv1.", r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{60}"),
    _shape("databricks_token", "dapi", r"dapi[a-f0-9]{32}"),
    _shape("huggingface_token", "hf_", r"hf_[A-Za-z0-9]{30}"),
    _shape("docker_token", "dckr_", r"dckr_[po]at_[A-Za-z0-9_-]{20}"),
    _shape("linear_key", "lin_", r"lin_(?:api|oauth)_[A-Za-z0-9]{32}"),
    _shape("notion_key", "ntn_ secret_", r"(?:ntn_|secret_)[A-Za-z0-9]{40}"),
    _shape("figma_token", "figd_", r"figd_[A-Za-z0-9_-]{30}"),
    _shape("grafana_token", "glsa_ glc_", r"(?:glsa|glc)_[A-Za-z0-9+/_=]{30}"),
    _shape("newrelic_key", "NRAK-", r"NRAK-[A-Z0-9]{27}"),
    _shape("sentry_token", "sntry", r"sntry[su]_[A-Za-z0-9+/=_-]{30}"),
    _shape("groq_key", "gsk_", r"gsk_[A-Za-z0-9]{40}"),
    _shape("replicate_token", "r8_", r"r8_[A-Za-z0-9]{36}"),
    _shape("xai_key", "xai-", r"xai-[A-Za-z0-9]{60}"),
    _shape("age_key", "AGE-SECRET-KEY-", r"AGE-SECRET-KEY-1[A-Z0-9]{50}", ""),
)

_BY_LITERAL: Final = tuple((literal, shape.pattern, shape.kind) for shape in SHAPES for literal in shape.literals)

# --- what no issuer marked ---------------------------------------------------------------------------

RUN_CHARS_MIN: Final = 28
_RUN = re.compile(rf"[A-Za-z0-9+/_=-]{{{RUN_CHARS_MIN},}}")
_JUDGED = 256  # as many characters of a run tell what it is
_CLASSES = str.maketrans(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789",
    "l" * 26 + "u" * 26 + "d" * 10,
    "+/_=-",
)
_WORDS = re.compile("l{4,}")
_CHANGES = ("lu", "ul", "ld", "dl", "ud", "du")
# Digests, public keys and pictures say what they are, and ids that other services hand out have a prefix.
_KNOWN = re.compile(
    r"sha(?:1|224|256|384|512)-|AAAA[BCE]3NzaC1|"
    r"(?:toolu|msg|msgbatch|req|call|resp|run|thread|step|asst|evt|cus|sub|prod|price|batch|event)_|(?:chatcmpl|file|gen)-"
)
# Ulids and uuids stand in paths and behind prefixes, and are names, not credentials: a run is judged without them.
_IDS = re.compile(
    r"(?<![A-Za-z0-9])(?:[0-7][0-9A-HJKMNP-TV-Z]{25}|[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})(?![A-Za-z0-9])"
)
_BEFORE = ("base64,", "SHA256:", "sha256:")


def find_shape(text: str) -> str | None:
    """Return the kind of the first credential that is one by its shape, in a text without much whitespace."""
    for literal, pattern, kind in _BY_LITERAL:
        if literal in text and pattern.search(text):
            return kind
    for run in _RUN.finditer(text):
        start, rest = run.start(), _IDS.sub("", run[0])
        if (
            len(rest) >= RUN_CHARS_MIN
            and is_random(rest)
            and not text.startswith(_BEFORE, max(0, start - 7), start)
        ):
            return "high_entropy"
    return None


def is_random(run: str) -> bool:
    """Tell whether a run of letters and digits was more likely rolled with dice than written by a person."""
    head = run[:_JUDGED]
    if head.lower() == head or head.upper() == head or _KNOWN.match(head):
        return False
    classes = head.translate(_CLASSES)
    length = len(classes)
    changes = sum(map(classes.count, _CHANGES))
    in_words = sum(map(len, _WORDS.findall(classes)))
    return changes >= 0.4 * length and in_words <= 0.4 * length and len(set(head)) >= min(16, length // 2)
