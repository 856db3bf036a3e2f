-- adopt: take units whose end was written down, and could not be told, into an in-flight list of ours
-- KEYS queues lease tomb ours
-- ARGV lease_ms name (flight payload)*
-- returns "LOST" when we were buried, else for each unit 1: it is in our list; 0: it is neither in flight as it was nor
--   back in its queue, whose name is name, so somebody has started it, or it was told. Looked for are the 10,000 next to
--   run: a rescue puts it there. What our list holds among its newest is ours already: this call was sent before.
-- include base
-- include keys
local MOST = 10000
if redis.call('EXISTS', KEYS[3]) == 1 then
  return 'LOST'
end
redis.call('PEXPIRE', KEYS[2], ARGV[1])
local queue, taken = key('queue_prefix') .. ARGV[2], {}

local function is_taken(flight, payload)
  if redis.call('LPOS', KEYS[4], payload, 'MAXLEN', 200) then
    return 1
  end
  if redis.call('LREM', own_key(flight), -1, payload) == 0 then
    if not redis.call('LPOS', queue, payload, 'RANK', -1, 'MAXLEN', MOST) then
      return 0
    end
    redis.call('LREM', queue, -1, payload)
  end
  redis.call('LPUSH', KEYS[4], payload)
  return 1
end

for at = 3, #ARGV, 2 do
  taken[#taken + 1] = is_taken(ARGV[at], ARGV[at + 1])
end
return taken
