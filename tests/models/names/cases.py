"""A small graph in which the names of detections are like those of what they detect."""

from __future__ import annotations

import numpy as np

from fewlink.graph import Graph, Vocabulary

THREATS = (
    *("Phishing", "Brute Force", "Data Destruction", "Screen Capture", "Keylogging", "Rootkit", "Port Scan"),
    *("Password Spraying", "Session Hijacking", "Token Theft", "Disk Wipe", "Café Répété", "DNS Tunnel", "Ping Flood"),
)
NAMES = (*THREATS, *(f"Detection of {threat}" for threat in THREATS), "Windows", "Linux")


def graph_of(labels: bool = True) -> Graph:
    """Threats 0 to 13, detections 14 to 27, and two platforms on which threats and detections run."""
    count = len(THREATS)
    triples = [(threat, 0, 2 * count + threat % 2) for threat in range(count)]
    triples += [(count + threat, 1, 2 * count + threat // 7) for threat in range(count)]
    triples += [(threat, 2, (threat + 3) % count) for threat in range(count)]
    entities = Vocabulary.of([f"Q{number}" for number in range(len(NAMES))])
    relations = ["runs_on", "watches", "precedes"]
    named = Vocabulary.of([*NAMES, *relations]) if labels else None
    return Graph.of(entities, Vocabulary.of(relations), np.array(triples), labels=named)


REFERENCES = np.array([[14 + 0, 0], [14 + 4, 4], [14 + 9, 9]], np.int32)  # a detection and its threat
