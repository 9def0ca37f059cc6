import { useState } from "preact/hooks";
import { accessScope, createPolicy, listPolicies, type PolicyData } from "../../lib/access.ts";
import { count, counted, plain } from "../../lib/format.ts";
import { useFollowed, useLoaded } from "../../lib/hooks.ts";
import { go, hrefOf } from "../../lib/router.ts";
import { Text, When } from "../../ui/basics.tsx";
import { type DialogEnds, Field, FormDialog, useFields } from "../../ui/dialog.tsx";
import { ResourceList } from "../../ui/resource.tsx";

export type TypedPolicy = Pick<PolicyData, "actions" | "resources" | "condition">;

const emptyPolicy: TypedPolicy = { actions: "", resources: "*", condition: "" };

export function PolicyFields(props: { of: TypedPolicy; onChange: (text: TypedPolicy) => void }) {
  const { of, onChange } = props;
  return (
    <>
      <Field
        label="Actions"
        isRequired
        isCode
        value={of.actions}
        onInput={(actions) => onChange({ ...of, actions })}
        hint="With commas between, such as events:emit, runs:*"
      />
      <Field
        label="Resources"
        isRequired
        isCode
        value={of.resources}
        onInput={(resources) => onChange({ ...of, resources })}
        hint="Such as irn:svc:*:*:event:production:order.*; * is everything."
      />
      <Field
        label="Condition (CEL)"
        isCode
        rows={4}
        value={of.condition}
        onInput={(condition) => onChange({ ...of, condition })}
        hint="Over subject, request, resource and time; empty: always."
      />
    </>
  );
}

export function PoliciesPage() {
  const scope = accessScope();
  const read = useLoaded((signal) => listPolicies(scope, signal), [scope]);
  useFollowed(read.reload, { list: "policies" });
  return (
    <ResourceList
      title="Policies"
      about="Roles grant rights. A policy takes single rights away."
      makes={{ text: "New policy…", icon: "plus", needs: scope.manages.policies, dialog: NewPolicy }}
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
        { name: "Changed", isNumber: true, of: ({ updated_at }) => <When at={updated_at} /> },
      ]}
      empty="No policies"
      docs="access"
      says="Everyone may do what their roles grant."
    />
  );
}

function NewPolicy({ onClose }: DialogEnds) {
  const scope = accessScope();
  const [{ name }, field] = useFields({ name: "" });
  const [fields, setFields] = useState(emptyPolicy);
  const submit = async () => {
    const { id } = await createPolicy(scope, { name, ...fields });
    go(hrefOf(["policies", id]));
    return `Policy ${plain(name)} made: no role has it yet`;
  };
  return (
    <FormDialog title="New policy" submit="Make" onSubmit={submit} onClose={onClose}>
      <Field label="Name" isRequired {...field("name")} />
      <PolicyFields of={fields} onChange={setFields} />
    </FormDialog>
  );
}
