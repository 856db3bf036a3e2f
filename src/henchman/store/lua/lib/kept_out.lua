-- Whether a dead job may come back.
-- include locks
-- include once

-- The jid for which a dead job may not come back, of whose effects `text` is the JSON: by now that one has its key, or has
-- succeeded with it. nil: it may.
local function kept_out_by(text)
  if not string.find(text, '["relock"', 1, true) then
    return nil
  end
  for _, effect in ipairs(cjson.decode(text)) do
    if effect[1] == 'relock' and effect[2] ~= 'f' then  -- a followed job comes back beside who has taken its key over
      local phase, scope, name, jid = effect[2], effect[3], effect[4], effect[5]
      local holder = lock_holder(phase, scope, name)
      if not holder and phase == 'o' then
        local letter, earlier = once_look(scope, name, effect[6])
        holder = letter == 's' and earlier or nil
      end
      if holder and holder ~= jid then
        return holder
      end
    end
  end
end
