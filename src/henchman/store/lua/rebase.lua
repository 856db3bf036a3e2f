-- rebase: move times along with the server's clock: a page of a sorted set of times, once
-- KEYS clock source
-- ARGV left then (member score new)*
-- returns 1, or 0 with nothing moved: the step that `left` tells of is not the first any more, or has got further. `then`
--   takes its place, and nothing does when it is empty: so who goes on after a death knows what was moved. A member whose
--   time is not `score` any more stays: somebody else has moved it.
redis.call('HDEL', KEYS[1], '')  -- no-op write: after a removal a full server accepts the writes that follow
local left = redis.call('HGET', KEYS[1], 'left') or ''
if string.sub(left, 1, #ARGV[1]) ~= ARGV[1] then
  return 0
end
for i = 3, #ARGV, 3 do
  if tonumber(redis.call('ZSCORE', KEYS[2], ARGV[i]) or '') == tonumber(ARGV[i + 1]) then
    redis.call('ZADD', KEYS[2], ARGV[i + 2], ARGV[i])
  end
end
left = ARGV[2] .. string.sub(left, #ARGV[1] + 1)
if left == '' then
  redis.call('HDEL', KEYS[1], 'left')
else
  redis.call('HSET', KEYS[1], 'left', left)
end
return 1
