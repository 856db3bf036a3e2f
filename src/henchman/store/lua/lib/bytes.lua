-- How many bytes of payloads one call moves or reads at most; the first payload of a call always has room.
local MOST_BYTES = 4194304
