-- deliver: push what a client had to keep while the server was away, once: under a known mark nothing happens
-- KEYS queues mark
-- ARGV mark_ms (name at delay payload)*
-- returns one status an entry: 1 pushed, a text: the server refused this one; an empty list when the mark was known,
--   that is when an earlier delivery was executed and its answer lost. A name "" is the schedule (at a Unix
--   time, or empty: delay counts from the server's now). A server that takes nothing
--   refuses the mark, and with it the whole.
-- include base
-- include keys
if not redis.call('SET', KEYS[2], '1', 'PX', ARGV[1], 'NX') then
  return {}
end
local now = server_now()
local status = {}

local function place(name, at, delay, payload)
  if name ~= '' then
    redis.call('SADD', KEYS[1], name)
    redis.call('LPUSH', key('queue_prefix') .. name, payload)
  else
    redis.call('ZADD', key('schedule'), at == '' and as_text(now + tonumber(delay)) or at, payload)
  end
end

for entry = 1, (#ARGV - 1) / 4 do
  local at = 4 * entry - 2
  local fine, problem = pcall(place, ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3])
  status[entry] = fine and 1 or in_words(problem)
end
return status
