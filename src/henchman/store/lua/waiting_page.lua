-- waiting_page: those who wait for a need, in their order
-- KEYS queues
-- ARGV scope name after most
-- returns {token, jid, row, {line…}} for each behind the token after, at most most, or as many as have 4 MB: row is null
--   of one that is not parked; lines are those that it still stands in, where it has several needs.
-- include base
-- include keys
-- include needs
local waiting_line, found, size = key('awaits') .. 'n' .. ARGV[1] .. '\n' .. ARGV[2], {}, 0
local flat = redis.call('ZRANGEBYSCORE', waiting_line, '(' .. ARGV[3], '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[4])
for at = 1, #flat, 2 do
  local shown, large = needing().shown(flat[at])
  found[#found + 1] = {flat[at + 1], shown[1], shown[2], shown[3]}
  size = size + large
  if size >= MOST_BYTES then
    break
  end
end
return found
