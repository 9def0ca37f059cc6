import { useState } from "preact/hooks";
import { accessScope, createPolicy, listPolicies } from "../../lib/access.ts";
import { count, counted, instantOf, plain } from "../../lib/format.ts";
import { useChanged, useLoaded, useNet } from "../../lib/hooks.ts";
import { go, hrefOf } from "../../lib/router.ts";
import { may } from "../../lib/session.ts";
import { toast } from "../../lib/toasts.ts";
import { Button, Empty, PageHead, Text, When } from "../../ui/basics.tsx";
import { Field, FormDialog } from "../../ui/dialog.tsx";
import { ReadTable } from "../../ui/table.tsx";
import { emptyPolicy, PolicyFields } from "./policy-fields.tsx";

export function PoliciesPage() {
  const scope = accessScope();
  const [isMaking, setMaking] = useState(false);
  const read = useLoaded((signal) => listPolicies(scope, signal), [scope]);
  useChanged("policies", read.reload);
  useNet(read.reload);
  return (
    <div class="page">
      <PageHead
        title="Policies"
        about="Roles grant; a policy denies its roles single things of that"
        actions={
          may(scope.manages.policies) && (
            <Button kind="primary" icon="plus" onClick={() => setMaking(true)}>
              New policy…
            </Button>
          )
        }
      />
      <ReadTable
        read={read}
        keyOf={({ id }) => id}
        columns={[
          {
            name: "Policy",
            of: ({ id, name, warnings = [] }) => (
              <>
                <Text of={name} href={hrefOf(["policies", id])} />
                {warnings.length > 0 && <span class="under warn">{counted(warnings.length, "warning")}</span>}
              </>
            ),
          },
          { name: "Denies", of: ({ actions }) => <Text of={actions.slice(0, 200)} /> },
          { name: "Of", of: ({ resources }) => <Text of={resources.slice(0, 200)} /> },
          { name: "Roles", isNumber: true, of: ({ role_count = 0 }) => count(role_count) },
          { name: "Version", isNumber: true, of: ({ version }) => count(version) },
          { name: "Changed", isNumber: true, of: ({ updated_at }) => <When at={instantOf(updated_at)} /> },
        ]}
        empty={<Empty title="No policies" says="Everyone may do what their roles grant." />}
      />
      {isMaking && <NewPolicy onClose={() => setMaking(false)} />}
    </div>
  );
}

function NewPolicy({ onClose }: { onClose: () => void }) {
  const scope = accessScope();
  const [name, setName] = useState("");
  const [fields, setFields] = useState(emptyPolicy);
  const submit = async () => {
    const { id } = await createPolicy(scope, { name, ...fields });
    toast("done", `Policy ${plain(name)} made: no role has it yet`);
    go(hrefOf(["policies", id]));
  };
  return (
    <FormDialog title="New policy" submit="Make" onSubmit={submit} onClose={onClose}>
      <Field label="Name" isRequired value={name} onInput={setName} />
      <PolicyFields of={fields} onChange={setFields} />
    </FormDialog>
  );
}
