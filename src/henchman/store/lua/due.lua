-- due: look at what is due in a set, if this process may stage; removes nothing
-- KEYS staging retry schedule clock
-- ARGV identity staging_ms most
-- returns {0, server's now} when another process stages, else {1, server's now, due retries, due scheduled, next, more,
--   back}:
--   at most most of each set, which end with the one that reaches 4 MB; more is 1 when others are due. next is the
--   score of the earliest entry that is not due yet, or an empty text. back: seconds that the clock has gone back by
--   since the last look of any process, as a text
-- include base
-- include lead
-- include bytes
local now, most, size, next_score = server_now(), tonumber(ARGV[3]), 0, nil
if not lead(KEYS[1], ARGV[1], ARGV[2]) then
  return {0, as_text(now)}
end
local back = math.max(tonumber(redis.call('HGET', KEYS[4], 'now') or '0') - now, 0)
redis.call('HSET', KEYS[4], 'now', as_text(now))
local found, more = {}, 0
for i = 2, 3 do
  local entries = {}
  local due = redis.call('ZCOUNT', KEYS[i], '-inf', as_text(now))
  while #entries < math.min(due, most) and size < MOST_BYTES do
    local entry = redis.call('ZRANGE', KEYS[i], #entries, #entries)[1]
    entries[#entries + 1] = entry
    size = size + #entry
  end
  more = #entries < due and 1 or more
  found[i] = entries
  local head = redis.call('ZRANGEBYSCORE', KEYS[i], '(' .. as_text(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  if head[2] and (not next_score or tonumber(head[2]) < tonumber(next_score)) then
    next_score = head[2]
  end
end
return {1, as_text(now), found[2], found[3], next_score or '', more, as_text(back)}
