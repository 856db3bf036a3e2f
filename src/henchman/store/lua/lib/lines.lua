-- Lines of a fair queue: a list for each tenant and level, and whose turn it is. Whoever pushes pushes into the queue's own
-- list, as into any queue; from there jobs are taken into their lines. While lines hold jobs, the list holds at least one,
-- so that whoever waits for a push is woken. A line's key is that of a queue called as `line_name` says.
--
-- Keys: `fair_facts`<queue> hash: waiting (jobs in lines), back (jobs at the right end of the list that were in a line
-- before), at:<level> (the turn that was served last), weight:<tenant>, by:<job> (the argument that is the tenant) ·
-- `fair_turns`<level>:<queue> zset: tenant by its next turn. Of a tenant of weight 4 four turns are one of another's.
-- include bytes
-- include line_name
local LEVELS = {'high', 'normal', 'low'}
local AT_MOST = 1000  -- jobs that one call takes into lines
local DECODED = 65536  -- bytes of a payload that is decoded to find its tenant, at most

-- The smallest of a heap of {turn, order, tenant} is its first: let one sink to its place.
local function sink(heap, at)
  local moved, size = heap[at], #heap
  while 2 * at <= size do
    local child = 2 * at
    local left, right = heap[child], heap[child + 1]
    if right and (right[1] < left[1] or (right[1] == left[1] and right[2] < left[2])) then
      child = child + 1
    end
    local small = heap[child]
    if moved[1] < small[1] or (moved[1] == small[1] and moved[2] < small[2]) then
      break
    end
    heap[at], at = small, child
  end
  heap[at] = moved
end

local function lines_of(queue)
  local home, facts = key('queue_prefix') .. queue, key('fair_facts') .. queue
  local known, turns, at = {}, {}, {}
  local flat = redis.call('HGETALL', facts)
  for i = 1, #flat, 2 do
    known[flat[i]] = flat[i + 1]
  end
  for _, level in ipairs(LEVELS) do
    turns[level] = key('fair_turns') .. level .. ':' .. queue
    at[level] = tonumber(known['at:' .. level] or 0)
  end
  local unserved = 0
  local waiting, back = tonumber(known.waiting or 0), tonumber(known.back or 0)
  local has_by = string.find(table.concat(flat, '\n'), 'by:', 1, true)

  local function step_of(tenant)
    local weight = known['weight:' .. tenant]
    return weight and 1 / tonumber(weight) or 1
  end

  local function text_of(value)
    if type(value) == 'number' then
      return string.format(value == math.floor(value) and math.abs(value) < 1e15 and '%d' or '%.17g', value)
    end
    return type(value) == 'string' and string.sub(value, 1, 200) or nil
  end

  -- Level and tenant of a job that another program pushed: what it says itself, else by its argument.
  local function asked_of(payload)
    local head = string.sub(payload, 1, 1024)
    local before = string.sub(head, 1, (string.find(head, '"args":', 1, true) or 1) - 1)
    local tenant, level = string.match(before, '"fair":"([^"\\]*)"'), string.match(before, '"priority":"(%a+)"')
    local is_said = string.find(payload, '"fair"', 1, true) or string.find(payload, '"priority"', 1, true)
    if not tenant and (has_by or is_said) and #payload <= DECODED then
      local fine, job = pcall(cjson.decode, payload)
      if fine and type(job) == 'table' then
        local place = tonumber(known['by:' .. tostring(job.class)])
        tenant = text_of(job.fair) or (place and type(job.args) == 'table' and text_of(job.args[place + 1]))
        level = level or (type(job.priority) == 'string' and job.priority)
      end
    end
    return level, tenant
  end

  local function place_of(payload)
    local tenant, after = string.match(payload, '^{"fair":"([^"\\]*)",()')
    local level = string.match(payload, '^"priority":"(%a+)"', after or 2)
    if not tenant and (has_by or not level) then
      local asked, whose = asked_of(payload)
      level, tenant = level or asked, whose
    end
    return turns[level or ''] and level or 'normal', tenant or ''
  end

  local function named(level, tenant)
    return line_name(queue, level, tenant)
  end

  local function age_of(payload)
    local told = string.match(payload, '"enqueued_at":([%d.]+)') or string.match(payload, '"created_at":([%d.]+)')
    local age = tonumber(told or nil)
    return age and age > 1e11 and age / 1000 or age
  end

  -- Whether this payload, at the right end of the list, was in its line before: it is no newer than the next there.
  local function was_before(payload, line)
    local following = redis.pcall('LRANGE', line, -1, -1)[1]
    local mine, other = age_of(payload), following and age_of(following)
    return not (mine and other and mine > other)
  end

  -- What was given back, and who had been chosen to stand in the list, is next in its line, and has its turn again.
  local function take_back()
    local count, returned = 0, {}
    while count < math.min(back, AT_MOST) do
      local payload = redis.call('LRANGE', home, -1 - count, -1 - count)[1]
      if not payload then
        break
      end
      local level, tenant = place_of(payload)
      local line = key('queue_prefix') .. named(level, tenant)
      if not was_before(payload, line) then
        break
      end
      count = count + 1
      returned[count] = {payload, level, tenant}
    end
    for place = count, 1, -1 do
      local payload, level, tenant = unpack(returned[place])
      local line = key('queue_prefix') .. named(level, tenant)
      if type(redis.pcall('RPUSH', line, payload)) == 'table' then  -- the key of the line holds something else
        level, tenant = 'normal', ''
        line = key('queue_prefix') .. named(level, tenant)
        redis.call('RPUSH', line, payload)
      end
      local turn = tonumber(redis.call('ZSCORE', turns[level], tenant) or at[level] + step_of(tenant))
      redis.call('ZADD', turns[level], string.format('%.17g', turn - step_of(tenant)), tenant)
    end
    if count > 0 then
      redis.call('LTRIM', home, 0, -1 - count)
    end
    back = math.max(back - AT_MOST, 0)
    waiting = waiting + count
  end

  local function enter(level, tenant, payloads)
    local line = key('queue_prefix') .. named(level, tenant)
    if type(redis.pcall('LPUSH', line, unpack(payloads))) == 'table' then  -- as above
      level, tenant = 'normal', ''
      line = key('queue_prefix') .. named(level, tenant)
      redis.call('LPUSH', line, unpack(payloads))
    end
    redis.call('ZADD', turns[level], 'NX', string.format('%.17g', at[level] + step_of(tenant)), tenant)
  end

  -- Take up to AT_MOST jobs, or 4 MB, out of the list into their lines.
  local function take_in()
    if type(redis.pcall('LLEN', home)) == 'table' then  -- a key that is no list holds no jobs
      return
    end
    if back > 0 then
      take_back()
    end
    local count, size, step, groups, order = 0, 0, 1, {}, {}
    while count < AT_MOST and size < MOST_BYTES do
      local found = redis.call('LRANGE', home, -(count + step), -(count + 1))
      for i = #found, 1, -1 do
        local level, tenant = place_of(found[i])
        local name = named(level, tenant)
        if not groups[name] then
          groups[name] = {level, tenant, {}}
          order[#order + 1] = name
        end
        table.insert(groups[name][3], found[i])
        size = size + #found[i]
      end
      count = count + #found
      if #found < step then
        break
      end
      step = math.min(AT_MOST - count, 2 * count, AT_ONCE)
    end
    for _, name in ipairs(order) do
      enter(unpack(groups[name]))
    end
    if count > 0 then
      redis.call('LTRIM', home, 0, -1 - count)
    end
    waiting = waiting + count
  end

  local function is_paused(level, tenant)
    return redis.call('SISMEMBER', key('paused'), named(level, tenant)) == 1
  end

  -- Up to most jobs by the turns of the next tenants of a level, as far as there is room; they are added to taken. How much
  -- room is left, and how many turns were those of lines that had been emptied.
  local function serve_next(level, taken, most, room)
    local paused, gone = redis.call('SCARD', key('paused')), 0
    local flat, heap = redis.call('ZRANGE', turns[level], 0, most - #taken - 1 + paused, 'WITHSCORES'), {}
    for i = 1, #flat, 2 do
      if paused == 0 or not is_paused(level, flat[i]) then
        heap[#heap + 1] = {math.max(tonumber(flat[i + 1]), at[level]), i, flat[i]}
      end
    end
    for place = math.floor(#heap / 2), 1, -1 do
      sink(heap, place)
    end
    local moved, behind = {}, #flat
    while heap[1] and #taken < most and room > 0 do
      local turn, _, tenant = unpack(heap[1])
      local line = key('queue_prefix') .. named(level, tenant)
      local found = redis.pcall('LRANGE', line, -1, -1)
      if found.err and not string.find(found.err, 'WRONGTYPE', 1, true) then
        error(found.err, 0)
      end
      local payload = found[1]
      if payload and #payload > room and room < MOST_BYTES then
        room = 0
      elseif payload then
        redis.call('LTRIM', line, 0, -2)
        room, taken[#taken + 1], at[level] = room - #payload, payload, turn
        moved[tenant] = turn + step_of(tenant)
        behind = behind + 1
        heap[1] = {moved[tenant], behind, tenant}
        sink(heap, 1)
      else  -- the line is empty, or no line: no turn for it
        gone = redis.call('ZREM', turns[level], tenant) + gone
        moved[tenant] = nil
        heap[1] = heap[#heap]
        heap[#heap] = nil
        if heap[1] then
          sink(heap, 1)
        end
      end
    end
    for tenant, turn in pairs(moved) do
      local line = key('queue_prefix') .. named(level, tenant)
      if redis.call('EXISTS', line) == 1 then
        redis.call('ZADD', turns[level], string.format('%.17g', turn), tenant)
      else
        redis.call('ZREM', turns[level], tenant)
      end
    end
    return room, gone
  end

  -- The same of a whole level. Where thousands of lines were emptied by hand, the next call goes on.
  local function serve_level(level, taken, most, room)
    local gone, passes = 1, 0
    while gone > 0 and #taken < most and room > 0 and passes < AT_MOST do
      room, gone = serve_next(level, taken, most, room)
      passes = passes + 1
    end
    unserved = passes == AT_MOST and unserved + gone or unserved
    return room
  end

  local function serve(most)
    local taken, room = {}, MOST_BYTES
    for _, level in ipairs(LEVELS) do
      if #taken < most and room > 0 then
        room = serve_level(level, taken, most, room)
      end
    end
    waiting = waiting - #taken
    return taken
  end

  -- The next of those who wait goes into the list, if that is empty; and what is known is written down.
  local function finish()
    if type(redis.pcall('LLEN', home)) == 'number' and redis.call('EXISTS', home) == 0 then
      local high, normal, low = at.high, at.normal, at.low
      local first = serve(1)[1]
      at.high, at.normal, at.low = high, normal, low  -- its turn is to come
      if first then
        redis.call('SADD', KEYS[1], queue)
        redis.call('RPUSH', home, first)
        back = back + 1
      end
    end
    local is_empty = true
    for _, level in ipairs(LEVELS) do
      if redis.call('EXISTS', turns[level]) == 1 then
        redis.call('HSET', facts, 'at:' .. level, string.format('%.17g', at[level]))
        is_empty = false
      elseif known['at:' .. level] then
        redis.call('HDEL', facts, 'at:' .. level)
      end
    end
    if back > 0 then
      redis.call('HSET', facts, 'back', back)
    elseif known.back then
      redis.call('HDEL', facts, 'back')
    end
    if is_empty then
      redis.call('HDEL', facts, 'waiting')
    else
      redis.call('HSET', facts, 'waiting', waiting)
    end
    local length = redis.pcall('LLEN', home)
    return type(length) == 'number' and length > 0 and math.max(length - back, 0) or math.min(unserved, 1)
  end

  return {home = home, take_in = take_in, serve = serve, finish = finish}
end
