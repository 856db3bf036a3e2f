-- Places of limits that are free: who waits for one has it, the oldest first, if all else that it needs is free too.
-- include needs
-- include limits
local MOST_HANDED = 500  -- who are let go in one script

-- Apart: since when a parked job waits for a place, for how long at most, whether its rates are done, its limits.
local function limits_of_row(reason)
  local since, most, timed, text = string.match(reason or '', '^limit (%S+) (%S+) (%d) (.*)$')
  if since then
    return cjson.decode(text), tonumber(most), timed == '1'
  end
end

local function leave_line(jid, line)
  local waiting_line = key('awaits') .. line
  redis.call('ZREM', waiting_line, jid)
end

local function enter_line(jid, line, place)
  local waiting_line = key('awaits') .. line
  redis.call('ZADD', waiting_line, place, jid)
  redis.call('ZADD', key('doubt'), 'NX', as_text(server_now()), doubt_of(line))
end

-- A job waits no longer for a place: it goes into its queue, next to run, or with its time into the schedule.
local function let_start(jid, queue, due, payload, tracked, at)
  if at then
    come_in_time(payload, at)
    if tracked ~= '' and carry_tracked then
      pcall(carry_tracked, payload, (string.gsub(tracked, '"enqueued"', '"scheduled"', 1)))
    end
  else
    let_go('s', queue, due, payload, tracked)
  end
  unpark(jid, due)
  redis.call('ZREM', key('parked_until'), jid)
end

-- Its place in line comes with it, and its key's line has its own order of who waits.
local function wait_elsewhere(jid, line, full, place, row)
  if full[1] == 'r' then
    redis.call('ZREM', key('parked_until'), jid)
    put_parked(jid, row.queue, row.due, 'running', row.tracked, row.payload)
  end
  enter_line(jid, limit_line(full), place)
  leave_line(jid, line)
end

-- What becomes of the first of a line: false, it waits on, and so do all behind it.
local function hand_one(line, jid, place)
  local queue, due, reason, tracked, payload = parked_row(jid)
  local limits, most, timed = limits_of_row(reason)
  if not limits then  -- it ended while it waited
    leave_line(jid, line)
    return true
  end
  local full, at, notes = limits_judge(jid, limits, timed)
  if full and limit_line(full) == line then
    return false
  end
  local now = server_now()
  if full then
    wait_elsewhere(jid, line, full, place, {queue = queue, due = due, tracked = tracked, payload = payload})
  elseif at > now and most > 0 and at - now > most then  -- the stager ends it
    redis.call('ZADD', key('parked_until'), as_text(now), jid)
    leave_line(jid, line)
  elseif at > now then
    let_start(jid, queue, due, with_time(payload, at), tracked, at)
    limits_note(notes)
    leave_line(jid, line)
  else
    let_start(jid, queue, due, #notes > 0 and with_time(payload, now) or payload, tracked)
    limits_note(notes)
    limits_take(jid, limits, '0')
    leave_line(jid, line)
  end
  return true
end

-- Who waits for a place of the limit `name` goes on, as far as there are some; how many did.
local function hand_slots(name, by)
  local line, handed = 's' .. name .. '\n' .. by, 0
  local waiting_line = key('awaits') .. line
  while handed < MOST_HANDED do
    local first = redis.call('ZRANGE', waiting_line, 0, 0, 'WITHSCORES')
    if not first[1] then
      redis.call('ZREM', key('doubt'), doubt_of(line))
      break
    end
    if not hand_one(line, first[1], first[2]) then
      break
    end
    handed = handed + 1
  end
  return handed
end

-- A job has its place no longer, if it had one: its heir has, who waited for it in its process, or the next in line.
local function slot_free(name, by, jid, heir)
  local places_key = key('slots') .. name .. ':' .. by
  redis.call('SREM', key('behind'), jid)
  if redis.call('HDEL', places_key, jid) == 1 then
    if heir and redis.call('SISMEMBER', key('behind'), heir) == 1 then
      redis.call('HSET', places_key, heir, '0 ' .. as_text(server_now()))
    else
      hand_slots(name, by)
    end
    if redis.call('EXISTS', places_key) == 0 then
      local taken_key = key('limited') .. name
      redis.call('SREM', taken_key, by)
    end
  end
end

-- A run took more or fewer points than was estimated.
local function points_spent(name, by, n, per, more)
  local rate_key, now = key('rates') .. 'p:' .. name .. ':' .. by, server_now()
  n, per = limit_size({'p', name, by, n, per})
  local full = math.max(tonumber(redis.call('GET', rate_key) or now) or now, now) + more * per / n
  if full > now then
    redis.call('SET', rate_key, as_text(full), 'PX', keep_ms(full, now))
  else
    redis.call('DEL', rate_key)
  end
end
