-- rebase: move what was computed before the server's clock went back: a page of a sorted set of times
-- KEYS source
-- ARGV from by most
-- returns {how many were moved, score of the last, or an empty text}. The scores from `from` on become earlier by `by`
--   seconds, at most `most` of them, or those that reach 4 MB; the next page begins at the score of the last.
-- include base
-- include page
local found, count = page_of(function(place, many)
  return redis.call('ZRANGEBYSCORE', KEYS[1], ARGV[1], '+inf', 'WITHSCORES', 'LIMIT', place, many)
end, tonumber(ARGV[3]), 1, 2)
for i = 1, #found, 2 do
  redis.call('ZADD', KEYS[1], as_text(found[i + 1] - ARGV[2]), found[i])
end
return {count, found[#found] or ''}
