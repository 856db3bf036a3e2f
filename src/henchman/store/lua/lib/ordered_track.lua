-- The records of a tracked queue: what becomes of each payload is told to the history by the script that moves it.
-- Beside each pile of payloads stands a hash, `jp:<id>` beside `p:<id>` (and what stands alone), `jn:<id>`, `jm:<id>`: what
-- names a payload there → the jid of its record. A payload without one was pushed by somebody who did not track.
-- `tracking()` gives `track` of lib/ordered.lua.
-- include batch
local function tracking()
  local batches, found = batching(), {}

  local function attempt(act, ...)  -- a record that fails goes to the broken list, and stops nobody
    local fine, problem = pcall(act, ...)
    if not fine then
      local told = {unit = '', ending = 'tracked', effects = table.concat({...}, ' '), error = in_words(problem)}
      redis.pcall('LPUSH', key('broken'), cjson.encode(told))
      redis.pcall('LTRIM', key('broken'), 0, 999)
    end
  end
  local function say(jid, status, detail, run, identity)
    attempt(batches.record, jid, '', status, run or '', identity or '', detail)
  end
  found.is_full = batches.is_full
  function found.done()  -- once, after everything
    attempt(batches.flush)
  end

  local function field(body)
    return #body > 40 and redis.sha1hex(body) or body
  end
  local function fields(bodies, first)
    local some = {}
    for place = first, math.min(first + 499, #bodies) do
      some[#some + 1] = field(bodies[place])
    end
    return some
  end

  -- The jids of payloads in the hash of their pile, false where one has none.
  local function jids_of(hash, bodies)
    local jids = {}
    for first = 1, #bodies, 500 do
      for _, jid in ipairs(redis.call('HMGET', hash, unpack(fields(bodies, first)))) do
        jids[#jids + 1] = jid
      end
    end
    return jids
  end
  found.jids_of = jids_of

  -- The jids of what a holder has in hand, which stands at the beginning of `p:` as long as it has; and the payloads,
  -- unless it is one that stands alone: that one is all that its hash knows.
  local function in_hand(id, delivered)
    if delivered == 0 then
      return redis.call('HVALS', base .. 'jp:' .. id)
    end
    local bodies = redis.call('ZRANGE', base .. 'p:' .. id, 0, delivered - 1)
    return jids_of(base .. 'jp:' .. id, bodies), bodies
  end

  local function merged(jid, into, why)
    if jid and jid ~= into then
      local whose = into or 'one that is not tracked'
      say(jid, 'cancelled', '{"ending":"merged","reason":"merged into ' .. whose .. ': ' .. why .. '"}')
    end
  end

  -- A record comes to those of a pile, and goes on in place of that of an equal payload.
  local function prevail(hash, name, jid, quiet)
    local other = redis.call('HGET', hash, name)
    redis.call('HSET', hash, name, jid)
    if other and not quiet then
      merged(other, jid, 'an equal payload waits')
    end
  end

  -- A payload joins a pile in which equal ones are one: the record that is there already goes on.
  function found.join(pile, body, jid)
    if jid and redis.call('HSETNX', base .. 'j' .. pile, field(body), jid) == 0 then
      merged(jid, redis.call('HGET', base .. 'j' .. pile, field(body)), 'an equal payload waits')
    end
  end

  -- Of a pile and the one that comes with `jid` only `body` stays: the one that came, unless it is `older`.
  function found.only(pile, body, jid, older)
    local others, stays = redis.call('HVALS', base .. 'j' .. pile), jid
    if older then
      stays = redis.call('HGET', base .. 'j' .. pile, field(body))
      merged(jid, stays, 'it has a higher score')
    end
    for _, other in ipairs(others) do
      merged(other, stays, 'it has a higher score, or came later')
    end
    redis.call('DEL', base .. 'j' .. pile)
    if stays then
      redis.call('HSET', base .. 'j' .. pile, field(body), stays)
    end
    return stays
  end

  -- The record of the newest of a pile that is gone.
  function found.take_newest(pile, body)
    local jid = found.only(pile, body, nil, true)
    redis.call('DEL', base .. 'j' .. pile)
    return jid
  end

  -- A whole pile joins another; with `quiet` what merges stays what it is.
  function found.merge(from, to, quiet)
    local source, target = base .. 'j' .. from, base .. 'j' .. to
    if redis.call('EXISTS', target) == 0 then
      if redis.call('EXISTS', source) == 1 then
        redis.call('RENAME', source, target)
      end
      return
    end
    if redis.call('HLEN', source) > redis.call('HLEN', target) then  -- the smaller one moves; those of `to` go on
      local flat = redis.call('HGETALL', target)
      for place = 1, #flat, 2 do
        prevail(source, flat[place], flat[place + 1], quiet)
      end
      redis.call('UNLINK', target)
      redis.call('RENAME', source, target)
      return
    end
    local flat = redis.call('HGETALL', source)
    for place = 1, #flat, 2 do
      if redis.call('HSETNX', target, flat[place], flat[place + 1]) == 0 and not quiet then
        merged(flat[place + 1], redis.call('HGET', target, flat[place]), 'an equal payload waits')
      end
    end
    redis.call('UNLINK', source)
  end

  -- Some payloads of a pile (with their scores) go to another. Of equal ones the record of those that are there goes on,
  -- or with `first_go_on` theirs; with `quiet` what merges stays what it is.
  function found.move_records(from, to, flat, first_go_on, quiet)
    local source, target, bodies = base .. 'j' .. from, base .. 'j' .. to, {}
    for place = 1, #flat, 2 do
      bodies[#bodies + 1] = flat[place]
    end
    for first = 1, #bodies, 500 do
      local names = fields(bodies, first)
      for place, jid in ipairs(redis.call('HMGET', source, unpack(names))) do
        if jid and first_go_on then
          prevail(target, names[place], jid)
        elseif jid and redis.call('HSETNX', target, names[place], jid) == 0 and not quiet then
          merged(jid, redis.call('HGET', target, names[place]), 'an equal payload waits')
        end
      end
      redis.call('HDEL', source, unpack(names))
    end
  end

  -- These payloads of a pile (with their scores) are `status` from now on; with `gone` they are not there any more.
  function found.some(pile, flat, status, detail, gone)
    local source, bodies = base .. 'j' .. pile, {}
    for place = 1, #flat, 2 do
      bodies[#bodies + 1] = flat[place]
    end
    for first = 1, #bodies, 500 do
      local names = fields(bodies, first)
      for _, jid in ipairs(redis.call('HMGET', source, unpack(names))) do
        if jid then
          say(jid, status, detail)
        end
      end
      if gone then
        redis.call('HDEL', source, unpack(names))
      end
    end
  end

  -- Every payload of a pile is `status` from now on; with `gone` it is not there any more.
  function found.all(pile, status, detail, gone)
    for _, jid in ipairs(redis.call('HVALS', base .. 'j' .. pile)) do
      say(jid, status, detail)
    end
    if gone then
      redis.call('UNLINK', base .. 'j' .. pile)
    end
  end

  -- A payload was pushed. `head` is the beginning of its detail; large ones are told of by their size.
  function found.begin(jid, head, id, payload, score, now, due_at)
    local shown = #payload > 65536 and '"(' .. #payload .. ' bytes)"' or payload
    local later = due_at > now
    say(jid, later and 'scheduled' or 'enqueued', head .. cjson.encode(id) .. ',' .. shown .. '],"kwargs":{"score":'
      .. score .. (later and ',"at":' .. as_text(due_at) or '') .. '}}')
  end

  -- These, or the one that stands alone, are in the hands of `identity` now; their jids, '' where one has none.
  function found.began(id, bodies, token, run, identity)
    local hash, detail = base .. 'jp:' .. id, '{"ending":"started","token":' .. token .. '}'
    local jids = bodies and jids_of(hash, bodies) or redis.call('HVALS', hash)
    for place, jid in ipairs(jids) do
      if jid then
        say(jid, 'working', detail, run, identity)
      end
      jids[place] = jid or ''
    end
    jids[1] = jids[1] or ''
    return jids
  end

  -- Nobody has them in hand any more, and they wait as before.
  function found.rescued(id, delivered, identity)
    for _, jid in ipairs((in_hand(id, delivered))) do
      if jid then
        say(jid, 'enqueued', '{"ending":"rescued","reason":"its process ended, or lost the claim"}', '', identity)
      end
    end
  end

  -- What ordered_settle_tracked calls told, read: error, status, detail, attempt, status and detail of what is not buried.
  function found.read(told)
    if string.byte(told) == 43 then
      local run, detail = string.match(told, '^%+(%d+) (.*)$')
      return {'', 'finished', detail, run}
    end
    return cjson.decode(told)
  end

  -- A run is over, before anything moves.
  function found.ended(id, delivered, verdict, identity, told)
    local jids, bodies = in_hand(id, delivered)
    local gone = false
    for place, jid in ipairs(jids) do
      local rest = verdict == 'to_morgue' and place > 1
      if jid then
        say(jid, told[rest and 5 or 2], told[rest and 6 or 3], told[4], identity)
        gone = true
      end
    end
    if verdict == 'to_morgue' and jids[1] then
      local name = bodies and field(bodies[1]) or redis.call('HKEYS', base .. 'jp:' .. id)[1]
      redis.call('HDEL', base .. 'jp:' .. id, name)
      redis.call('HSETNX', base .. 'jm:' .. id, name, jids[1])
    elseif verdict == 'done' and gone and not bodies then
      redis.call('DEL', base .. 'jp:' .. id)
    elseif verdict == 'done' and gone then
      for first = 1, #bodies, 500 do
        redis.call('HDEL', base .. 'jp:' .. id, unpack(fields(bodies, first)))
      end
    end
  end

  -- What waits under an id goes to another queue.
  function found.moved(jid, failed, queue, later)
    say(jid, failed and 'retrying' or later and 'scheduled' or 'enqueued',
      '{"ending":"moved","reason":"moved to another queue","queue":' .. cjson.encode(queue) .. '}')
  end
  return found
end
