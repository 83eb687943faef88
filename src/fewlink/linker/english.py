"""English words by which the names of relations are read: verbs, adjectives, nouns and the words between them."""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


PREPOSITIONS = _words(
    "about above after against around as at before behind below between by during for from in inside into near of on "
    "onto outside over than through to toward towards under until up upon via with within without"
)
PLACES = _words("above at below from in inside near on outside under within")  # a state begins with: "in season"
AUXILIARIES = _words("can could did does had has is may might must should was were will would")
ARTICLES = _words("a an the")
NO_NOUNS = AUXILIARIES | _words(
    "all and any are because been but each if instead no none not one only or out some that there this when which "
    "while who"
)

VERBS = _words(  # in the third person; few of them are plural nouns too
    """
    accepts accesses accompanies acetylates acquires activates adapts adds adopts advises affects alleviates allocates
    allows analyses analyzes annexes announces antagonizes appears applies approximates assesses assumes attends
    augments authenticates authorizes becomes begins belongs bestows binds borders borrows builds buys carries
    catalyses catalyzes causes characterizes cites classifies cleaves coexists cofounds collaborates colonizes comes
    commits competes compiles complicates comprises concerns confers configures conflicts connects consists consumes
    contains contradicts contraindicates converts cooperates correlates covaries creates criticizes crosses cures
    deactivates deals decomposes decreases defeats defines degrades deletes delivers denotes depends dephosphorylates
    depicts deploys derives describes desires detects determines develops diagnoses directs disables disrupts
    downregulates drains eats educates elects embodies employs enables encodes encrypts endorses enforces enhances
    entails enters enumerates erases estimates evaluates evolves executes exemplifies exists explains exploits
    expresses extends facilitates fasciculates flies flows follows forges founds gives goes governs happens hardens
    hates hires holds honors honours hunts identifies imitates implements implies inactivates includes increases
    indicates induces infects inhabits inheres inherits inhibits initiates injects innervates inspires installs
    instantiates instructs interacts interferes interprets intersects introduces invades invests invokes involves
    isolates joins kills knows lacks leads lies likes lives loads localizes loves maintains makes manages manufactures
    marries mediates metabolizes methylates mitigates modifies modulates needs neutralizes obfuscates obtains occupies
    occurs operates opposes originates overlaps overrides owes owns palliates parasitizes participates pays performs
    phosphorylates pollinates portrays possesses precedes precipitates predisposes prevents proceeds produces promotes
    protects proves provides publishes reads receives reduces refers reflects regenerates registers regulates relates
    releases represents represses requires resembles resides resolves restores restricts revolves runs secretes sees
    sells sends serves shares speaks specifies spoofs stands stimulates stipulates stores strengthens submits
    subscribes succeeds summarizes supersedes supplies supports suppresses surrounds suspends takes targets teaches
    terminates throws transacts transcribes transforms translates transmits transports treats triggers ubiquitinates
    underlies underwrites unloads unmounts upregulates uses validates verifies wears wins works worsens writes
    """
)
OFTEN_NOUNS = _words(  # verbs before a preposition or alone
    "attacks beats brings chairs covers drives ends exports features feeds finances forms funds handles helps hosts "
    "imports invites lists manifests mentions offers plays powers quotes returns rules scores starts studies "
    "touches trains visits"
)
BASES = _words(  # verbs that are no nouns
    "add allow become begin belong bring build choose cite come compile connect consist contain create define depend "
    "derive describe detect enter exist expose follow generate get give go happen identify implement include inherit "
    "invoke involve know lead learn make need obtain occur produce protect provide publish read receive refer require "
    "respond send serve take treat write"
)
PAST = _words(  # active, also before a preposition
    """
    acted appeared arrived attended beat became began belonged came campaigned collaborated commented competed
    contributed debuted died drove emigrated ended evolved finished fought gave graduated grew happened immigrated
    joined knew lived lost migrated moved occurred originated participated performed played raced ran resided
    responded resulted retired reigned sang sailed scored spoke starred started studied succeeded taught took traveled
    travelled voted went won worked wrote
    """
)
BEFORE_NOUNS = _words("hosted visited used")  # active before a noun
NEEDS_MORE = _words(  # verbs that say nothing before a noun: "lives in", not "lives"
    """
    acted appeared appears arrived belonged belongs campaigned coexists collaborated collaborates comes commented
    competed competes consists contributed cooperates correlates deals depends died emigrated exists flies flows
    graduated happened happens immigrated interacts interferes leads lies lived lives migrated occurred occurs
    originated originates participated participates performed proceeds reigned relates resided resides responded
    resulted retired revolves stands traveled travelled voted went worked works
    """
)
PASSIVE = _words(  # participles that are no past form
    "been begun born chosen drawn driven given grown hidden known seen shown spoken sung sworn taken worn written"
)
PARTICIPLES = PASSIVE | _words(
    "bought brought built fed felt found held kept led left made met paid put run said sent set shot sold sought spent "
    "taught thought told understood won"
)
NOT_PAST = _words(
    "bed bleed breed creed deed embed feed greed hundred kindred need red reed sacred seed shed sled speed weed"
)
QUALITIES = _words(  # what is something before a preposition
    """
    able active adjacent analogous available aware capable close common comparable compatible consistent contemporary
    dependent different disjoint distinct equal equivalent exclusive famous homologous identical independent inferior
    native next notable orthologous parallel paralogous part perpendicular present relative relevant representative
    responsible short similar simultaneous specific subject subordinate successful superior symmetric synonymous
    tangent typical unique
    """
)
COMPARED = _words("broader earlier fewer greater higher larger later lower narrower older smaller wider younger")
OUT = _words("away back down off out up")  # between a participle and a preposition: "sent off in"
THINGS = _words("building meaning painting ranking rating ring setting spelling spring string thing wing")
LIKE_ADVERBS = _words("anomaly assembly family monopoly reply supply")  # nouns that end in -ly
ONLY_ONE = _words("capital father mother")  # of something
DIRECTIONS = _words("east left north northeast northwest right south southeast southwest west")  # "is north of"
VOWELS = ("heir", "honor", "honour", "hour")  # begin with a vowel when spoken
EITHER_WAY = _words(  # "A wife B" may say that A is the wife, or that B is
    "aunt brother daughter granddaughter grandfather grandmother grandson husband nephew niece sister son uncle wife"
)
PARENTS = _words("father mother")
BOTH_WAYS = frozenset({"has the same name as", "same as", "shares border with"})
AFTER_OF = _words("birth burial citizenship death origin residence")  # in a noun: "place of birth"
STATES = {
    "related": "is related to",
    "associated": "is associated with",
    "connected": "is connected to",
    "same as": "is the same as",
    "shares border with": "shares a border with",
    "opposite of": "is the opposite of",
    "inverse of": "is the inverse of",
    "sub class of": "is a subclass of",
    "sub property of": "is a subproperty of",
    "starring": "stars",
}
SINGULAR = {  # of plurals that rules do not form
    "aliases": "alias",
    "children": "child",
    "classes": "class",
    "people": "person",
    "statuses": "status",
}
NOUNS = _words(  # whose plural is no verb
    """
    ability actor alias alignment athlete author award background book brother category character characteristic child
    city class color colour company component condition constructor country creator daughter dependency director
    domain editor employee event extension faculty father founder friend genre group ingredient instrument interpreter
    keyword language leader location member mother neighbor neighbour occupation organization owner parent participant
    partner person platform player product proficiency property publisher region relative requirement role sibling
    sister skill son song speaker spouse standard status student subclass subject subsidiary symbol symptom synonym
    tag teacher team theme topic type user variant version writer
    """
)
PLURAL_NOUNS = _words(  # and other nouns that end in s
    "arts atlas canvas economics gas goods headquarters lens mathematics news physics politics sales series species "
    "sports subspecies"
)
