import { useState } from "preact/hooks";
import { count } from "../../lib/format.ts";
import { useLive, useLoaded, useNet, usePages } from "../../lib/hooks.ts";
import { go, hrefOf } from "../../lib/router.ts";
import { may } from "../../lib/session.ts";
import { listSources, readFlow } from "../../lib/webhooks.ts";
import { Button, Empty, PageHead, Text, When } from "../../ui/basics.tsx";
import { Bad, ReadTable } from "../../ui/table.tsx";
import { Address, CreateSource, type MadeSource } from "./source-forms.tsx";

const readMs = 10_000;

export function SourcesPage() {
  const [isMaking, setMaking] = useState(false);
  const [made, setMade] = useState<MadeSource>();
  const read = usePages(listSources, []);
  const flow = useLoaded(readFlow, []);
  const reload = () => {
    read.reload();
    flow.reload();
  };
  useLive("system.webhook_source.>", { onFrame: reload, onBack: reload });
  useNet(reload, readMs);
  const countOf = (id: string, status: string) => flow.value?.get(id)?.counts[status] ?? 0;
  return (
    <div class="page">
      <PageHead
        title="Webhooks in"
        about="What providers send becomes events"
        actions={
          may("webhooks:manage") && (
            <Button kind="primary" icon="incoming" onClick={() => setMaking(true)}>
              Add a source…
            </Button>
          )
        }
      />
      <ReadTable
        read={read}
        keyOf={({ id }) => id}
        empty={<Empty title="No sources" says="A source has an address that a provider calls." />}
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
      {isMaking && <CreateSource onMade={setMade} onClose={() => setMaking(false)} />}
      {made && <Address {...made} onClose={() => go(hrefOf(["webhooks-in", made.id]))} />}
    </div>
  );
}
