-- schedule: put payloads into the schedule, each at a time of its own
-- KEYS schedule
-- ARGV (at delay payload)*
-- returns how many were added. at is a producer's Unix time, or empty: then delay counts from the server's now, so
--   that a producer whose clock is wrong does no harm.
-- include base
local now = server_now()
local added = 0
for i = 1, #ARGV, 3 do
  local at = ARGV[i]
  if at == '' then
    at = as_text(now + tonumber(ARGV[i + 1]))
  end
  added = added + redis.call('ZADD', KEYS[1], at, ARGV[i + 2])
end
return added
