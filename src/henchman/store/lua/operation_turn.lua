-- operation_turn: begin, end, abort, undo an operation: give it another state
-- KEYS operation operations_open trash trashes
-- ARGV id target keep_s life_s text (state)*
-- returns 1 it has the state target now, 0 it has none of these states, so nothing is changed; -1 nothing lies in its trash.
--   target is running, undoing, or a state in which nobody works on it; text says why it ended so. What lies in its trash
--   stays for keep_s seconds after it ended, for life_s while it is undone; the operation itself for life_s.
-- include base
local state, target, keep, fits = redis.call('HGET', KEYS[1], 'state'), ARGV[2], ARGV[3], false
if state == target then
  return 1
end
for at = 6, #ARGV do
  fits = fits or state == ARGV[at]
end
if not fits then
  return 0
end
local works = target == 'running' or target == 'undoing'
if target == 'undoing' and redis.call('EXISTS', KEYS[3]) == 0 then
  return -1
end
redis.call('EXPIRE', KEYS[1], ARGV[4])
if works then
  redis.call('SADD', KEYS[2], ARGV[1])
else
  redis.call('SREM', KEYS[2], ARGV[1])
end
local now, kept = server_now(), redis.call('HGET', KEYS[4], KEYS[3])
if redis.call('EXPIRE', KEYS[3], works and ARGV[4] or keep) == 1 and kept then
  local ends = now + tonumber(works and ARGV[4] or keep)
  redis.call('HSET', KEYS[4], KEYS[3], as_text(ends) .. string.match(kept, ' %d+$'))
  redis.call('HSET', KEYS[1], 'until', as_text(ends))
else
  redis.call('HDEL', KEYS[1], 'until')
  redis.call('HDEL', KEYS[4], KEYS[3])
end
redis.call('HSET', KEYS[1], 'state', target, 'at', as_text(now), 'text', ARGV[5])
return 1
