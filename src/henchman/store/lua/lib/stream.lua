-- The stream of the history, as scripts write it. KEYS[at] is the stream, then come its size in bytes, whether it is
-- kept, what was dropped (store/keys.py). With `many` the script tells of many jobs: what their records have in common
-- is written once, by `flush`, as one entry (`k` = jobs: a line `jid detail` for each in `d`; history/bundles.py).
local MOST_LINES, MOST_BYTES = 500, 32768  -- jobs and bytes of one entry; its reader counts to 2,047

local function streaming(at, many)
  local stream, bytes = {}, 0
  local bundles, within = {}, {}  -- records that wait, by what they have in common; and their jids

  -- Whether the history is kept, and how many bytes it may hold; the second answer: whether a full one refuses.
  local kept, room, strict
  function stream.is_kept()
    if kept == nil then
      local said = redis.call('GET', KEYS[at + 2])
      kept = said and true or false
      if said then
        strict, room = string.match(said, '^(%S+) (%d+)$')
        strict, room = strict == 'strict', tonumber(room) or 0
      end
    end
    return kept
  end
  local function is_full()
    return stream.is_kept() and tonumber(redis.call('GET', KEYS[at + 1]) or '0') > room
  end
  function stream.is_full()
    return is_full() and strict
  end

  local function count_bytes()
    if bytes > 0 then
      redis.call('INCRBY', KEYS[at + 1], bytes)
      bytes = 0
    end
  end
  local function write(...)
    bytes = bytes + 60
    for place = 1, select('#', ...) do
      bytes = bytes + #select(place, ...)
    end
    redis.call('XADD', KEYS[at], '*', ...)
    if not many then
      count_bytes()
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
  local function write_bundles()
    local waiting = bundles
    bundles, within = {}, {}
    for _, one in pairs(waiting) do
      stream.write_lines(one.id, one.status, one.attempt, one.identity, one.lines)
    end
  end
  stream.write_bundles = write_bundles

  local function bundle(jid, id, status, attempt, identity, detail)
    if within[jid] then
      write_bundles()  -- what is told of one job stays in its order
    end
    local key = id .. ' ' .. status .. ' ' .. attempt .. ' ' .. identity
    local one = bundles[key]
    if not one then
      one = {lines = {}, size = 0, id = id, status = status, attempt = attempt, identity = identity}
      bundles[key] = one
    end
    local line = jid .. ' ' .. detail
    one.lines[#one.lines + 1], one.size = line, one.size + #line
    within[jid] = true
    if #one.lines == MOST_LINES or one.size > MOST_BYTES then
      bundles[key] = nil
      stream.write_lines(id, status, attempt, identity, one.lines)
    end
  end

  function stream.record(jid, id, status, attempt, identity, detail)
    if not stream.is_kept() then
      return
    end
    if many and not string.find(jid .. detail, '\n', 1, true) and string.find(jid, '^%S+$') then
      bundle(jid, id, status, attempt, identity, detail)
    else
      write_bundles()
      write('k', 'job', 'j', jid, 'b', id, 's', status, 'a', attempt, 'w', identity, 'd', detail)
    end
  end

  -- The batch itself is in `state` from now on.
  function stream.tell(id, state, detail)
    if stream.is_kept() then
      write_bundles()
      write('k', 'batch', 'b', id, 's', state, 'd', detail)
    end
  end

  -- [said, log|progress, jid, batch, identity, detail]: something said on the way; a full history drops it first.
  function stream.said(effect)
    if not stream.is_kept() then
      return
    end
    if is_full() then
      redis.call('INCR', KEYS[at + 3])
    else
      write_bundles()
      write('k', effect[2], 'j', effect[3], 'b', effect[4], 'w', effect[5], 'd', effect[6])
    end
  end

  function stream.flush()
    write_bundles()
    count_bytes()
  end

  return stream
end
