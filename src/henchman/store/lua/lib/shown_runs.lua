-- What a process shows that it runs: `record` is its key, behind which stands `now`, or else `before`; nothing where these
-- keys hold something else.
-- include keys
local function shown_runs(record, now, before)
  local runs = redis.pcall('HVALS', own_key(record .. now))
  if #runs == 0 then  -- also an error: it has no length
    runs = redis.pcall('HVALS', own_key(record .. before))
  end
  return runs.err and {} or runs
end
