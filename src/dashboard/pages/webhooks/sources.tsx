import { useState } from "preact/hooks";
import { count } from "../../lib/format.ts";
import { useFollowed, useLoaded, usePages } from "../../lib/hooks.ts";
import { go, hrefOf } from "../../lib/router.ts";
import { may } from "../../lib/session.ts";
import { listSources, readFlow } from "../../lib/webhooks.ts";
import { Text, When } from "../../ui/basics.tsx";
import { Opener } from "../../ui/dialog.tsx";
import { ResourceList } from "../../ui/resource.tsx";
import { Bad } from "../../ui/table.tsx";
import { Address, CreateSource, type MadeSource } from "./source-forms.tsx";

const readMs = 10_000;

export function SourcesPage() {
  const [made, setMade] = useState<MadeSource>();
  const read = usePages(listSources, []);
  const flow = useLoaded(readFlow, []);
  const reload = () => {
    read.reload();
    flow.reload();
  };
  useFollowed(reload, { frames: "system.webhook_source.>", everyMs: readMs });
  const countOf = (id: string, status: string) => flow.value?.get(id)?.counts[status] ?? 0;
  return (
    <ResourceList
      title="Webhooks in"
      about="What providers send becomes events"
      actions={
        may("webhooks:manage") && (
          <>
            <Opener kind="primary" icon="incoming" text="Add a source…">
              {(onClose) => <CreateSource onMade={setMade} onClose={onClose} />}
            </Opener>
            {made && <Address {...made} onClose={() => go(hrefOf(["webhooks-in", made.id]))} />}
          </>
        )
      }
      read={read}
      keyOf={({ id }) => id}
      empty="No sources"
      docs="webhooks#in-from-a-provider"
      says="A source has an address that a provider calls."
      columns={[
        {
          name: "Source",
          of: ({ id, name }) => <Text of={name || id} href={hrefOf(["webhooks-in", id])} />,
        },
        { name: "Events", of: ({ prefix }) => <Text of={`${prefix}.*`} /> },
        {
          name: "Signature",
          of: ({ verifies }) => (verifies ? "verified" : <span class="warn">not verified</span>),
        },
        { name: "Accepted", isNumber: true, of: ({ id }) => count(countOf(id, "accepted")) },
        {
          name: "Refused",
          isNumber: true,
          of: ({ id }) => <Bad of={countOf(id, "rejected") + countOf(id, "failed")} />,
        },
        { name: "Latest", isNumber: true, of: ({ id }) => <When at={flow.value?.get(id)?.latestAt} /> },
      ]}
    />
  );
}
