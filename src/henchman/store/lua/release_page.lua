-- release_page: let go of jobs whose need was met when too many waited for it to go in that script
-- KEYS queues
-- ARGV entry most
-- returns {let go, left, refused}: at most most, or 4 MB, were looked at; refused: what the server said of one that its
--   queue refuses, and that comes last from now on, or an empty text. entry, "<number>\n<scope>\n<name>", leaves releases
--   with the last one.
-- include base
-- include keys
-- include effects
-- include bytes
local number, line = string.match(ARGV[1], '^(%d+)\n(.*)$')
local ready, releases = key('ready') .. (number or ''), key('releases')
redis.call('ZREM', key('cancelled'), '')  -- no-op write: after a removal a full server accepts the writes that follow
local needs = prepare_effects().needing()
local gone, size, refused = 0, 0, ''
for _, jid in ipairs(number and redis.call('ZRANGE', ready, 0, tonumber(ARGV[2]) - 1) or {}) do
  if size >= MOST_BYTES then
    break
  end
  local fine, said = pcall(needs.meet, jid, 'n' .. line)
  if fine then
    redis.call('ZREM', ready, jid)
    gone, size = gone + 1, size + said
  else
    redis.call('ZADD', ready, redis.call('INCR', key('token')), jid)
    refused = in_words(said)
  end
end
finish_effects()
local left = number and redis.call('ZCARD', ready) or 0
if left == 0 or refused ~= '' then
  redis.call('LREM', releases, 1, ARGV[1])
end
if left > 0 and refused ~= '' then
  redis.call('RPUSH', releases, ARGV[1])  -- behind the others
end
return {gone, left, refused}
