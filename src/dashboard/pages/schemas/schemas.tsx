import { useState } from "preact/hooks";
import { useLive, useLoaded, useNet, usePages } from "../../lib/hooks.ts";
import { hrefOf } from "../../lib/router.ts";
import { checkTraffic, listSchemas, refusedOf, type SchemaHeadView, setMode } from "../../lib/schemas.ts";
import { may } from "../../lib/session.ts";
import { toast } from "../../lib/toasts.ts";
import { Button, Empty, Failure, PageHead, Text, When } from "../../ui/basics.tsx";
import { Choice, FormDialog } from "../../ui/dialog.tsx";
import { Bad, ReadTable } from "../../ui/table.tsx";
import { RegisterDialog } from "./register.tsx";

export const modeWords = {
  enforce: "Events that break their schema are refused",
  warn: "Events that break their schema are written and marked",
  off: "Schemas are not enforced",
} as const;

interface SchemasOfEvent {
  event: string;
  latest: SchemaHeadView;
  versions: number;
}

/** Schemas by event: the server lists them by name and version. */
function byEvent(heads: readonly SchemaHeadView[]): SchemasOfEvent[] {
  const found = new Map<string, SchemasOfEvent>();
  for (const head of heads) {
    const versions = (found.get(head.event)?.versions ?? 0) + 1;
    found.set(head.event, { event: head.event, latest: head, versions });
  }
  return [...found.values()];
}

export function SchemasPage() {
  const [asked, setAsked] = useState<"register" | "mode">();
  const read = usePages((cursor, signal) => listSchemas(cursor, signal), []);
  const check = useLoaded((signal) => checkTraffic({}, signal), []);
  const reload = () => {
    read.reload();
    check.reload();
  };
  useLive("system.schema.>", { onFrame: reload, onBack: reload });
  useLive("system.enforcement.updated", { onFrame: check.reload });
  useNet(reload);
  const checksOf = (event: string) =>
    check.value?.schemas.filter(({ event_name }) => event_name === event) ?? [];
  const close = () => {
    setAsked(undefined);
    reload();
  };
  return (
    <div class="page">
      <PageHead
        title="Schemas"
        about={check.value && modeWords[check.value.mode]}
        actions={
          <>
            <Button icon="refresh" label="Check the traffic again" onClick={reload} />
            {may("secrets:manage") && check.value && (
              <Button onClick={() => setAsked("mode")}>Enforcement…</Button>
            )}
            {may("schemas:manage") && (
              <Button kind="primary" icon="schemas" onClick={() => setAsked("register")}>
                Register…
              </Button>
            )}
          </>
        }
      />
      {check.error !== undefined && <Failure error={check.error} onRetry={check.reload} />}
      <ReadTable
        read={{ ...read, value: read.value && byEvent(read.value) }}
        keyOf={({ event }) => event}
        empty={<Empty title="No schemas" says="Events without a schema may hold anything." />}
        columns={[
          {
            name: "Event",
            of: ({ event }) => (
              <>
                <Text of={event} href={hrefOf(["schemas", event])} />
                {checksOf(event).some(({ compile_error }) => compile_error !== "") && (
                  <span class="under warn">cannot be used</span>
                )}
              </>
            ),
          },
          { name: "For", of: ({ latest }) => <Text of={latest.description} /> },
          { name: "Latest", isNumber: true, of: ({ latest }) => `${latest.version}` },
          { name: "Versions", isNumber: true, of: ({ versions }) => `${versions}` },
          {
            name: "Refused in a day",
            isNumber: true,
            of: ({ event }) => <Bad of={checksOf(event).reduce((sum, one) => sum + refusedOf(one), 0)} />,
          },
          { name: "Changed", isNumber: true, of: ({ latest }) => <When at={latest.createdAt} /> },
        ]}
      />
      {asked === "register" && <RegisterDialog onClose={close} />}
      {asked === "mode" && check.value && <ModeDialog mode={check.value.mode} onClose={close} />}
    </div>
  );
}

function ModeDialog({ mode, onClose }: { mode: string; onClose: () => void }) {
  const [chosen, setChosen] = useState(mode);
  const submit = async () => {
    await setMode(chosen);
    toast("done", modeWords[chosen as keyof typeof modeWords]);
  };
  return (
    <FormDialog title="Enforcement of schemas" submit="Set" onSubmit={submit} onClose={onClose}>
      <Choice
        label="An event that breaks its schema"
        value={chosen}
        onChange={setChosen}
        options={[
          ["enforce", "is refused"],
          ["warn", "is written and marked"],
          ["off", "is written"],
        ]}
      />
      <p class="hint">For all events of this environment that have a schema, from now on.</p>
    </FormDialog>
  );
}
