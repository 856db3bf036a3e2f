-- blocked_look: what is known of jobs that may be parked
-- KEYS queues
-- ARGV (jid)*
-- returns {jid, row, {line…}} of each, fewer when they reach 4 MB: row is null of one that is not parked; lines are those
--   that it still stands in, where it has several needs.
-- include base
-- include keys
-- include needs
local answer, size = {}, 0
for _, jid in ipairs(ARGV) do
  local shown, large = needing().shown(jid)
  answer[#answer + 1], size = shown, size + large
  if size >= MOST_BYTES then
    break
  end
end
return answer
