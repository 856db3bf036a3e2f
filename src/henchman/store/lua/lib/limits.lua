-- Limits: whether a job may start, and what its start takes. A payload says each as {kind, name, by, n, per, cost}, see
-- henchman/limits/kinds.py: c places, held by jids until their jobs end; l, p what leaks evenly, b a period of the clock,
-- w a window of time; and {"r", scope, key} for the lock of its business key, looked at in the same breath. Redis says how
-- large a limit is from its first use on. All of a job's limits are looked at before the first is taken. Rates are given
-- out ahead: who is over one learns its time, and has it then.
-- include locks
local limit_sizes = {}
local function limit_size(one)  -- how many, in how many seconds
  local found = limit_sizes[one[2]]
  if not found then
    local kind, n, per = string.match(redis.call('HGET', key('limits'), one[2]) or '', '^(%l) (%S+) (%S+) ')
    if not kind then
      kind, n, per = one[1], one[4], one[5]
      redis.call('HSET', key('limits'), one[2], string.format('%s %d %.17g %d %.17g', kind, n, per, n, per))
    end
    found = {kind = kind, n = tonumber(n), per = tonumber(per)}
    limit_sizes[one[2]] = found
  end
  if found.kind ~= one[1] then  -- the code of another version calls another kind so
    return one[4], one[5]
  end
  return found.n, found.per
end

-- Of each rate: when a start that costs so much may come, and how that is written down.
local rates = {}
local function keep_ms(until_when, now)
  return math.ceil(math.max(until_when - now, 0) * 1000) + 1000
end

function rates.l(rate_key, n, per, cost, now)
  local full = tonumber(redis.call('GET', rate_key) or now) or now
  full = math.max(full, now) + cost * per / n
  local at = full - per
  return at <= now + per / n / 100 and now or at, function()
    redis.call('SET', rate_key, as_text(full), 'PX', keep_ms(full, now))
  end
end
rates.p = rates.l

function rates.w(rate_key, n, per, _, now)
  local before = tonumber(redis.call('LINDEX', rate_key, -n) or '')
  local at = math.max(before and before + per or now, now)
  return at, function()
    redis.call('RPUSH', rate_key, as_text(at))
    redis.call('LTRIM', rate_key, -n - 1, -1)
    redis.call('PEXPIRE', rate_key, keep_ms(at + per, now))
  end
end

function rates.b(rate_key, n, per, _, now)
  local current = math.floor(now / per)
  local period, used = string.match(redis.call('GET', rate_key) or '', '^(%d+) (%d+)$')
  period, used = tonumber(period or current), tonumber(used or 0)
  if period < current then
    period, used = current, 0
  end
  if used >= n then
    period, used = period + 1, 0
  end
  return period == current and now or period * per, function()
    redis.call('SET', rate_key, string.format('%.0f %d', period, used + 1), 'PX', keep_ms((period + 1) * per, now))
  end
end

-- What keeps a job from its start: the first of `limits` that has no place for it; or the time at which its rates let it
-- start, now or later, and what is to be written down then: of a job that had waited for its time there is nothing.
local function limits_judge(jid, limits, has_time)
  local now, has_all = server_now(), nil
  for _, one in ipairs(limits) do
    if one[1] == 'c' then
      local places_key = key('slots') .. one[2] .. ':' .. one[3]
      local has_it = redis.call('HEXISTS', places_key, jid) == 1
      if not has_it and redis.call('HLEN', places_key) >= limit_size(one) then
        return one
      end
      has_all = has_it and has_all ~= false
    elseif one[1] == 'r' then
      local holder = lock_holder('r', one[2], one[3])
      if holder and holder ~= jid then
        return one, holder
      end
    end
  end
  local at, notes, tightest = now, {}, nil
  for _, one in ipairs((has_time or has_all) and {} or limits) do  -- who has its places was judged when it got them
    if rates[one[1]] then
      local n, per = limit_size(one)
      local rate_key = key('rates') .. one[1] .. ':' .. one[2] .. ':' .. one[3]
      local its_time, note = rates[one[1]](rate_key, n, per, one[6], now)
      notes[#notes + 1] = note
      if its_time > at then
        at, tightest = its_time, one
      end
    end
  end
  return nil, at, notes, tightest
end

local function limits_note(notes)
  for _, note in ipairs(notes) do
    note()
  end
end

-- Places, and the lock of its key, for a job that starts. The caller has judged.
local function limits_take(jid, limits, token)
  for _, one in ipairs(limits) do
    if one[1] == 'c' then
      local places_key = key('slots') .. one[2] .. ':' .. one[3]
      redis.call('HSET', places_key, jid, token .. ' ' .. as_text(server_now()))
      local taken_key = key('limited') .. one[2]
      redis.call('SADD', taken_key, one[3])
    elseif one[1] == 'r' then
      lock_take('r', one[2], one[3], jid)
    end
  end
end

-- The payload of a job that has its time: no script looks at its rates again. Python takes that out when it starts.
local function with_time(payload, at)
  return string.sub(payload, 1, -2) .. ',"reserved_at":' .. as_text(at) .. '}'
end

-- A job with its time is in the schedule; whoever moves it from there hears of it, if it is the first that is due, and
-- sooner than the next look.
local LOOK = 1  -- seconds
local function come_in_time(payload, at)
  local now, first = server_now(), redis.call('ZRANGE', key('schedule'), 0, 0, 'WITHSCORES')[2]
  redis.call('ZADD', key('schedule'), as_text(at), payload)
  if at - now < LOOK and (not first or at < tonumber(first)) then
    redis.call('PUBLISH', key('control_all'), 'due')
  end
end

-- Why a job is parked that waits for a place, as its row has it; what else is needed to let it go.
local function limit_reason(limits_text, most, has_time)
  return 'limit ' .. as_text(server_now()) .. ' ' .. most .. ' ' .. (has_time and '1' or '0') .. ' ' .. limits_text
end

local function limit_line(one)
  return (one[1] == 'c' and 's' or one[1]) .. one[2] .. '\n' .. one[3]
end
