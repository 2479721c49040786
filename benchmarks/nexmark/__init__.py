"""Nexmark: an online auction's events and queries 0 to 8, beside DuckDB: `make nexmark EVENTS=100000`.

After the generator of Beam's Nexmark, in small: of 50 events one is a person, three are auctions, 46 are bids.
"""
