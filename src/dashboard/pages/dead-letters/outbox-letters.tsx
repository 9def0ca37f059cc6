import type { Static } from "@sinclair/typebox";
import { useState } from "preact/hooks";
import type { DeadLetter } from "../../../domain/record/outbox/operations.ts";
import { rest } from "../../lib/api.ts";
import { count } from "../../lib/format.ts";
import { useFollowed, usePages } from "../../lib/hooks.ts";
import { readValue } from "../../lib/kv.ts";
import { address, hrefOf, queryOf } from "../../lib/router.ts";
import { may } from "../../lib/session.ts";
import { attempt } from "../../lib/toasts.ts";
import { Button, Text, When } from "../../ui/basics.tsx";
import { Confirm, Dialog } from "../../ui/dialog.tsx";
import { JsonTextView } from "../../ui/json-view.tsx";
import { ReadTable } from "../../ui/table.tsx";

type LetterData = Static<typeof DeadLetter>;
interface LettersData {
  items: LetterData[];
  limit: number;
  offset: number;
}

const letters = "/api/v1/outbox/dead-letter";
const pageRows = 50;

async function listLetters(cursor: string, signal: AbortSignal) {
  const env = address.value.environment;
  const listPath = `${letters}${queryOf({ env, limit: `${pageRows}`, offset: cursor || "0" })}`;
  const { items, limit, offset } = await rest<LettersData>(listPath, { signal });
  // A page of large payloads has a lower limit than was asked for.
  return { rows: items, next: items.length < limit ? undefined : `${offset + limit}` };
}

/** Messages that the bus refused, and what else was given up. */
export function OutboxLetters() {
  const read = usePages(listLetters, []);
  const [shown, setShown] = useState<LetterData>();
  const [discarded, setDiscarded] = useState<LetterData>();
  useFollowed(read.reload, { frames: "system.outbox.>" });
  const requeue = async ({ event_id }: LetterData) => {
    const path = `${letters}/${encodeURIComponent(event_id)}/requeue`;
    if (await attempt(() => rest(path, { method: "POST" }), "It is tried anew")) read.reload();
  };
  return (
    <>
      <ReadTable
        read={read}
        keyOf={({ id }) => id}
        columns={[
          {
            name: "Topic",
            of: (letter) => (
              <>
                <Text of={letter.topic} />
                <span class="under">{letter.kind}</span>
              </>
            ),
          },
          {
            name: "Event",
            of: ({ event_id }) => (
              <a href={hrefOf(["events", event_id])}>
                <Text of={event_id} in="code" />
              </a>
            ),
          },
          { name: "Attempts", isNumber: true, of: ({ attempts }) => count(attempts) },
          { name: "Last error", of: ({ last_error }) => <Text of={last_error.slice(0, 300)} /> },
          { name: "Dead", isNumber: true, of: ({ dead_at }) => <When at={dead_at} /> },
          {
            name: "",
            of: (letter) => (
              <span class="row-actions">
                {letter.kind !== "group" && <Button onClick={() => setShown(letter)}>Payload</Button>}
                {may("outbox:manage") && (
                  <>
                    <Button icon="refresh" text="Try again" onClick={() => void requeue(letter)} />
                    <Button onClick={() => setDiscarded(letter)}>Discard…</Button>
                  </>
                )}
              </span>
            ),
          },
        ]}
        empty="The bus took everything"
        says="A message that still cannot be published after its last attempt is kept here, and a delivery that a group gave up."
      />
      {shown && (
        <Dialog title="Payload" onClose={() => setShown(undefined)}>
          <JsonTextView text={readValue(shown.payload).text ?? ""} what="payload" />
        </Dialog>
      )}
      {discarded && (
        <Confirm
          title="Discard the dead letters of this event?"
          verb="Discard"
          act={() => rest(`${letters}/${encodeURIComponent(discarded.event_id)}`, { method: "DELETE" })}
          done="Dead letters discarded"
          onDone={read.reload}
          onClose={() => setDiscarded(undefined)}
        >
          <p>Who should have got it never does. The event itself stays in the log.</p>
        </Confirm>
      )}
    </>
  );
}
