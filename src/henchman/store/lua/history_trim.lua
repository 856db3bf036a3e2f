-- history_trim: take out of the stream what is recorded
-- KEYS history history_bytes
-- ARGV least size
-- returns {entries removed, bytes counted, entries left}. Every entry before the id least goes, and size bytes from the
--   count. The removal comes first: a full server accepts it, and the count behind it.
local removed = redis.call('XTRIM', KEYS[1], 'MINID', ARGV[1])
return {removed, redis.call('DECRBY', KEYS[2], ARGV[2]), redis.call('XLEN', KEYS[1])}
