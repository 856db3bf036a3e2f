-- How many bytes of payloads one call moves or reads at most; the first payload of a call always has room.
local MOST_BYTES = 4194304
-- Entries of unknown size that are read at once, at most: eight of 3 MB take 20 ms, and one by one takes too long.
local AT_ONCE = 8
