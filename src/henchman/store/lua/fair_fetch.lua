-- fair_fetch: move up to n jobs of a fair queue by turns into the in-flight list of the process
-- KEYS queues lease tomb cancels flight
-- ARGV lease_ms n extra queue
-- returns "LOST" when the identity was buried, "LAPSED" when the lease is gone, else the number of cancellations so far,
--   how many jobs the queue's list holds that have yet to be taken into lines, and the payloads, next to run first: none
--   of a paused queue. If they fill n, up to extra more come. All together they have 4 MB, or are one payload. Renews the
--   lease first: an expiry is accepted by a full server. Lines are told of in lib/lines.lua.
-- include keys
-- include lines
-- include leased
local reply, left = {}, 0
if redis.call('SISMEMBER', key('paused'), ARGV[4]) == 0 then
  local lines = lines_of(ARGV[4])
  lines.take_in()
  reply = lines.serve(tonumber(ARGV[2]) + tonumber(ARGV[3]))
  for first = 1, #reply, 1000 do
    redis.call('LPUSH', KEYS[5], unpack(reply, first, math.min(first + 999, #reply)))
  end
  left = lines.finish()
end
return {tonumber(redis.call('GET', KEYS[4]) or 0), left, reply}
