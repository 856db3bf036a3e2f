-- deliver: push what a client had to keep while the server was away, once: under a known mark nothing happens
-- KEYS mark queues schedule (queue)*
-- ARGV mark_ms (index name at delay payload)*
-- returns one status an entry: 1 pushed, a text: the server refused this one; an empty list when the mark was known,
--   that is when an earlier delivery was executed and its answer lost. index 0 is the schedule (at a Unix time, or
--   empty: delay counts from the server's now), else the number of the queue in KEYS. A server that takes nothing
--   refuses the mark, and with it the whole.
-- include now
if not redis.call('SET', KEYS[1], '1', 'PX', ARGV[1], 'NX') then
  return {}
end
local now = server_now()
local status = {}

local function place(index, name, at, delay, payload)
  if index > 0 then
    redis.call('SADD', KEYS[2], name)
    redis.call('LPUSH', KEYS[3 + index], payload)
  else
    redis.call('ZADD', KEYS[3], at == '' and as_text(now + tonumber(delay)) or at, payload)
  end
end

for entry = 1, (#ARGV - 1) / 5 do
  local at = 5 * entry - 4
  local fine, problem = pcall(place, tonumber(ARGV[at + 1]), ARGV[at + 2], ARGV[at + 3], ARGV[at + 4], ARGV[at + 5])
  status[entry] = fine and 1 or (type(problem) == 'table' and problem.err or tostring(problem))
end
return status
