-- The stream of the history, as scripts write it. What the records of many jobs have in common is written once, by
-- `flush`, as one entry (`k` = jobs: a line `jid detail` for each in `d`). A record that cannot be written (the key holds
-- something else) goes to the broken list, and stops nothing of what is done.
local MOST_LINES, MOST_BYTES_OF_LINES = 500, 32768  -- jobs and bytes of one entry; its reader counts to 2,047

local function streaming()
  local stream, bytes, refused = {}, 0, nil
  local waiting, within = {}, {}  -- records that wait, by what they have in common; and their jids
  local entries, counter = key('history'), key('history_bytes')

  -- Whether the history is kept, and how many bytes it may hold; `strict`: whether a full one refuses.
  local is_kept, room, strict
  function stream.is_kept()
    if is_kept == nil then
      local policy = redis.pcall('GET', key('history_on'))
      is_kept = type(policy) == 'string'
      if is_kept then
        strict, room = string.match(policy, '^(%S+) (%d+)$')
        strict, room = strict == 'strict', tonumber(room) or 0
      end
    end
    return is_kept
  end
  local function has_no_room()
    return stream.is_kept() and tonumber(redis.call('GET', counter) or '0') > room
  end
  function stream.is_full()
    return has_no_room() and strict
  end

  local function write(...)
    local added = redis.pcall('XADD', entries, '*', ...)
    if type(added) == 'table' then
      refused = refused or added
      return
    end
    bytes = bytes + 60
    for place = 1, select('#', ...) do
      bytes = bytes + #select(place, ...)
    end
  end

  -- `lines`: `jid detail` of each job.
  function stream.write_lines(id, status, attempt, identity, lines)
    if #lines == 1 then
      local jid, detail = string.match(lines[1], '^(%S+) (.*)$')
      write('k', 'job', 'j', jid, 'b', id, 's', status, 'a', attempt, 'w', identity, 'd', detail)
      return
    end
    for first = 1, #lines, MOST_LINES do
      write('k', 'jobs', 'b', id, 's', status, 'a', attempt, 'w', identity,
        'd', table.concat(lines, '\n', first, math.min(first + MOST_LINES - 1, #lines)))
    end
  end
  function stream.write_waiting()
    local all = waiting
    waiting, within = {}, {}
    for _, one in pairs(all) do
      stream.write_lines(one.id, one.status, one.attempt, one.identity, one.lines)
    end
  end

  local function wait_for_others(jid, id, status, attempt, identity, detail)
    if within[jid] then
      stream.write_waiting()  -- the records of one job stay in their order
    end
    local common = id .. ' ' .. status .. ' ' .. attempt .. ' ' .. identity
    local one = waiting[common]
    if not one then
      one = {lines = {}, size = 0, id = id, status = status, attempt = attempt, identity = identity}
      waiting[common] = one
    end
    local line = jid .. ' ' .. detail
    one.lines[#one.lines + 1], one.size = line, one.size + #line
    within[jid] = true
    if #one.lines == MOST_LINES or one.size > MOST_BYTES_OF_LINES then
      waiting[common] = nil
      stream.write_lines(id, status, attempt, identity, one.lines)
    end
  end

  function stream.record(jid, id, status, attempt, identity, detail)
    if not stream.is_kept() then
      return
    end
    if not string.find(jid .. detail, '\n', 1, true) and string.find(jid, '^%S+$') then
      wait_for_others(jid, id, status, attempt, identity, detail)
    else
      stream.write_waiting()
      write('k', 'job', 'j', jid, 'b', id, 's', status, 'a', attempt, 'w', identity, 'd', detail)
    end
  end

  -- The batch itself is in `state` from now on.
  function stream.record_batch(id, state, detail)
    if stream.is_kept() then
      stream.write_waiting()
      write('k', 'batch', 'b', id, 's', state, 'd', detail)
    end
  end

  -- [said, log|progress, jid, batch, identity, detail]: a message or progress of a run; a full history drops these first.
  function stream.said(effect)
    if not stream.is_kept() then
      return
    end
    if has_no_room() then
      redis.call('INCR', key('history_dropped'))
    else
      stream.write_waiting()
      write('k', effect[2], 'j', effect[3], 'b', effect[4], 'w', effect[5], 'd', effect[6])
    end
  end

  function stream.flush()
    stream.write_waiting()
    if bytes > 0 then
      redis.pcall('INCRBY', counter, bytes)
      bytes = 0
    end
    if refused then
      local broken, note = key('broken'), {unit = '', ending = 'recorded', effects = '', error = in_words(refused)}
      redis.pcall('LPUSH', broken, cjson.encode(note))
      redis.pcall('LTRIM', broken, 0, 999)
      refused = nil
    end
  end

  return stream
end
