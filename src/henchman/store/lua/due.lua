-- due: look at what is due in a set, if this process may stage; removes nothing
-- KEYS staging retry schedule
-- ARGV identity staging_ms most
-- returns {0, server's now} when another process stages, else {1, server's now, due retries, due scheduled, next}: next is the
--   score of the earliest entry that is not due yet, or an empty text
-- include now
-- include lead
local now = server_now()
if not lead(KEYS[1], ARGV[1], ARGV[2]) then
  return {0, as_text(now)}
end
local found, next_score = {}, nil
for i = 2, 3 do
  found[i] = redis.call('ZRANGEBYSCORE', KEYS[i], '-inf', as_text(now), 'LIMIT', 0, ARGV[3])
  local head = redis.call('ZRANGEBYSCORE', KEYS[i], '(' .. as_text(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  if head[2] and (not next_score or tonumber(head[2]) < tonumber(next_score)) then
    next_score = head[2]
  end
end
return {1, as_text(now), found[2], found[3], next_score or ''}
