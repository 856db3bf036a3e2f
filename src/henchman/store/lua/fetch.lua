-- fetch: move up to n payloads from the queues, in the order given, into the in-flight lists of the process
-- KEYS lease tomb paused cancels (queue flight)*
-- ARGV lease_ms n (name extra)*
-- returns "LOST" when the identity was buried, "LAPSED" when the lease is gone, else the number of
--   cancellations so far and one list of payloads a queue, next to run first. The queue that fills n may give up to
--   extra payloads more (its jobs are short). Renews the lease first: an expiry is accepted by a full server.
if redis.call('EXISTS', KEYS[2]) == 1 then
  return 'LOST'
end
if redis.call('PEXPIRE', KEYS[1], ARGV[1]) == 0 then
  return 'LAPSED'
end
local want = tonumber(ARGV[2])
local reply = {tonumber(redis.call('GET', KEYS[4]) or 0)}
for pair = 1, (#KEYS - 4) / 2 do
  local queue, flight = KEYS[3 + 2 * pair], KEYS[4 + 2 * pair]
  local taken = {}
  if want > 0 and redis.call('SISMEMBER', KEYS[3], ARGV[1 + 2 * pair]) == 0 then
    local found = redis.pcall('LRANGE', queue, -(want + tonumber(ARGV[2 + 2 * pair])), -1)
    local count = found.err and 0 or #found  -- a key that is no list holds no jobs, and must not stop its neighbours
    if count > 0 then
      for i = count, 1, -1 do
        taken[count - i + 1] = found[i]
      end
      for first = 1, count, 1000 do
        redis.call('LPUSH', flight, unpack(taken, first, math.min(first + 999, count)))
      end
      redis.call('LTRIM', queue, 0, -(count + 1))
      want = want - count
    end
  end
  reply[pair + 1] = taken
end
return reply
