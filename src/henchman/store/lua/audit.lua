-- audit: an act is written down, in place of its beginning where that is given; a full server takes that too
-- KEYS audit
-- ARGV entry begun most
-- returns how many acts are written down
redis.call('LREM', KEYS[1], 1, ARGV[2])  -- a removal, or none: after it a full server accepts the writes that follow
redis.call('LREM', KEYS[1], 1, ARGV[1])  -- it was sent before, and its answer was lost
redis.call('LPUSH', KEYS[1], ARGV[1])
redis.call('LTRIM', KEYS[1], 0, tonumber(ARGV[3]) - 1)
return redis.call('LLEN', KEYS[1])
