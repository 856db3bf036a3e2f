-- ordered_free: take ids from a holder that is gone (or that did not hear of the claim); they are due as before
-- KEYS queues held
-- ARGV queue identity charge alone (id token)*
-- returns how many were freed; of those under which very much arrived not all: they stay in `held`, call again. charge: "1" when the holder died with them, which counts against each: two deaths make
--   a suspect, that runs alone; a third counts only if alone is "1". Call it for all that `held` names.
-- include base
-- include keys
-- include ordered
-- include ordered_track
local settings = redis.call('HMGET', meta, 'separator', 'track')
local separator = settings[1]
track = settings[2] and tracking()
local HELD, identity, freed, now = KEYS[2], ARGV[2], 0, server_now()
redis.call('HDEL', HELD, '')  -- no-op write: after a removal a full server accepts the writes that follow
for at = 5, #ARGV, 2 do
  local id, token = ARGV[at], ARGV[at + 1]
  local record = redis.call('HGET', busy, id)
  local held_by, delivered, was_due = read_record(record)
  local ours = held_by == token
  local many = ours and redis.call('ZSCORE', next_due, id) and not may_release(id, delivered)
  if not many then
    redis.call('HDEL', HELD, id)
  end
  if ours and not many then
    redis.call('HDEL', busy, id)
    if track then
      track.rescued(id, delivered, identity)
    end
    if redis.call('ZSCORE', next_due, id) then
      release_arrivals(id)
    end
    redis.call('ZADD', due, 'XX', tonumber(was_due) > now and as_text(now) or was_due, id)
    if ARGV[3] == '1' and (ARGV[4] == '1' or tonumber(redis.call('HGET', crash, id) or '0') < 2) then
      redis.call('HINCRBY', crash, id, 1)
    end
    leave_group(id, separator)
    leave_ceiling(token, identity)
    freed = freed + 1
  end
end
ring()  -- also when nothing was held: the marker that its holder took may be lost with it
if track then
  track.done()
end
return freed
