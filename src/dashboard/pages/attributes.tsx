import { useState } from "preact/hooks";
import { rest } from "../lib/api.ts";
import { count } from "../lib/format.ts";
import { useLoaded, useNet } from "../lib/hooks.ts";
import type { AttributesData } from "../lib/runs.ts";
import { may } from "../lib/session.ts";
import { Button, Empty, Section, Text, When } from "../ui/basics.tsx";
import { Confirm } from "../ui/dialog.tsx";
import { ReadTable } from "../ui/table.tsx";

const path = "/api/v1/attributes";
const readMs = 10_000;

/** What runs of the environment are found by. */
export function AttributesSection() {
  const read = useLoaded((signal) => rest<AttributesData>(path, { signal }), []);
  useNet(read.reload, readMs);
  const [chosen, setChosen] = useState<string>();
  const { value, error, reload } = read;
  return (
    <Section
      title="Attributes of runs"
      aside={
        value && (
          <span class="faint">{`${count(value.attributes.length)} of ${count(value.limits.names)} names`}</span>
        )
      }
    >
      <ReadTable
        read={{ value: value?.attributes, error, reload }}
        keyOf={({ name }) => name}
        label="Attributes of runs"
        empty={
          <Empty title="No run has an attribute" says="Handlers set them with run.set." docs="sdk#finding" />
        }
        columns={[
          { name: "Name", of: ({ name }) => <Text of={name} /> },
          { name: "Type", of: ({ type }) => type },
          {
            name: "Runs",
            isNumber: true,
            of: ({ runs, runs_capped }) => `${count(runs)}${runs_capped ? " or more" : ""}`,
          },
          { name: "First seen", of: ({ first_seen_at }) => <When at={first_seen_at} /> },
          {
            name: "",
            of: ({ name, deleted_at }) =>
              deleted_at ? (
                <span class="faint">being deleted</span>
              ) : (
                may("attributes:manage") && <Button onClick={() => setChosen(name)}>Delete…</Button>
              ),
          },
        ]}
      />
      {chosen !== undefined && (
        <Confirm
          title={`Delete attribute ${chosen}?`}
          verb="Delete the attribute"
          act={() => rest(`${path}/${encodeURIComponent(chosen)}`, { method: "DELETE" })}
          done="The attribute is being deleted"
          onDone={reload}
          onClose={() => setChosen(undefined)}
        >
          <p>Every run loses it, and what runs set until it is gone. Then the name is free for any type.</p>
        </Confirm>
      )}
    </Section>
  );
}
