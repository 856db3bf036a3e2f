-- fetch: move up to n payloads from the queues, in the order given, into the in-flight lists of the process
-- KEYS lease tomb paused cancels (queue flight)*
-- ARGV lease_ms n (name extra)*
-- returns "LOST" when the identity was buried, "LAPSED" when the lease is gone, else the number of
--   cancellations so far and one list of payloads a queue, next to run first. The queue that fills n may give up to
--   extra payloads more (its jobs are short). All together they have 4 MB, or are one payload. Renews the lease first:
--   an expiry is accepted by a full server.
-- include bytes
if redis.call('EXISTS', KEYS[2]) == 1 then
  return 'LOST'
end
if redis.call('PEXPIRE', KEYS[1], ARGV[1]) == 0 then
  return 'LAPSED'
end
local SMALL = 2048
local want, room = tonumber(ARGV[2]), MOST_BYTES

-- Up to most payloads of a list from its right end, as far as there is room: read few at once, for a list does not tell
-- how large its payloads are. Behind small ones there are rarely many large ones.
local function next_of(queue, most)
  local taken, count, step, largest = {}, 0, 1, 1
  while count < most and room > 0 do
    local found = redis.pcall('LRANGE', queue, -(count + step), -(count + 1))
    if found.err then  -- a key that is no list holds no jobs, and must not stop its neighbours
      break
    end
    for i = #found, 1, -1 do
      local size = #found[i]
      if size > room and room < MOST_BYTES then
        room = 0
        return taken, count
      end
      count, room, largest = count + 1, room - size, size > largest and size or largest
      taken[count] = found[i]
    end
    if #found < step then
      break
    end
    local at_once = largest < SMALL and 4 * AT_ONCE or AT_ONCE
    step = math.max(math.min(most - count, 2 * count, at_once, math.floor(room / largest)), 1)
  end
  return taken, count
end

local reply = {tonumber(redis.call('GET', KEYS[4]) or 0)}
for pair = 1, (#KEYS - 4) / 2 do
  local queue, flight = KEYS[3 + 2 * pair], KEYS[4 + 2 * pair]
  local taken, count = {}, 0
  if want > 0 and room > 0 and redis.call('SISMEMBER', KEYS[3], ARGV[1 + 2 * pair]) == 0 then
    taken, count = next_of(queue, want + tonumber(ARGV[2 + 2 * pair]))
    if count > 0 then
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
