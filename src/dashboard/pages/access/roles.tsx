import { useState } from "preact/hooks";
import {
  type AccessScope,
  assignPolicy,
  createRole,
  deleteRole,
  listPolicies,
  listRoles,
  policiesOfRole,
  type RoleData,
  unassignPolicy,
} from "../../lib/access.ts";
import { count, plain } from "../../lib/format.ts";
import { useFollowed, useLoaded } from "../../lib/hooks.ts";
import { hrefOf } from "../../lib/router.ts";
import { may } from "../../lib/session.ts";
import { attempt } from "../../lib/toasts.ts";
import { Button, Empty, Failure, Text } from "../../ui/basics.tsx";
import {
  type ChangeEnds,
  Check,
  Choice,
  Confirm,
  Dialog,
  Field,
  FormDialog,
  Opener,
  useFields,
} from "../../ui/dialog.tsx";
import { ReadTable } from "../../ui/table.tsx";

interface AskedOfRole {
  deed: "policies" | "delete";
  role: RoleData;
}

export function Roles({ scope }: { scope: AccessScope }) {
  const [asked, setAsked] = useState<AskedOfRole>();
  const read = useLoaded((signal) => listRoles(scope, signal), [scope]);
  useFollowed(read.reload, { list: "roles" });
  const manages = may(scope.manages.roles);
  const done = { onDone: read.reload, onClose: () => setAsked(undefined) };
  return (
    <>
      <div class="toolbar">
        {manages && (
          <Opener kind="primary" icon="plus" text="New role…">
            {(onClose) => (
              <RoleDialog {...{ scope, onClose }} roles={read.value ?? []} onDone={read.reload} />
            )}
          </Opener>
        )}
      </div>
      <ReadTable
        read={read}
        keyOf={({ id }) => id}
        columns={[
          {
            name: "Role",
            of: ({ id, name, is_default }) => (
              <>
                <Text of={name} />
                {is_default && <span class="tag">built in</span>}
                <Text of={id} in="code" class="under" />
              </>
            ),
          },
          {
            name: "Grants",
            of: ({ is_default, base, name }) =>
              is_default ? `what ${name} may` : base ? `what ${plain(base)} may` : "nothing",
          },
          { name: "Policies", isNumber: true, of: ({ policy_count }) => count(policy_count) },
          { name: "Keys", isNumber: true, of: ({ api_key_count }) => count(api_key_count) },
          {
            name: "",
            of: (role) => (
              <span class="row-actions">
                <Button onClick={() => setAsked({ deed: "policies", role })}>Policies…</Button>
                {manages && !role.is_default && (
                  <Button icon="trash" text="Delete…" onClick={() => setAsked({ deed: "delete", role })} />
                )}
              </span>
            ),
          },
        ]}
        empty="No roles"
      />
      {asked?.deed === "policies" && <RolePolicies scope={scope} role={asked.role} {...done} />}
      {asked?.deed === "delete" && <DeleteRole scope={scope} role={asked.role} {...done} />}
    </>
  );
}

interface RoleDialogProps extends ChangeEnds {
  scope: AccessScope;
}

function RoleDialog({ scope, roles, ...ends }: RoleDialogProps & { roles: readonly RoleData[] }) {
  const [{ name, base }, field] = useFields({ name: "", base: "" });
  const submit = async () => {
    await createRole(scope, { name, ...(base && { base }) });
    return `Role ${plain(name)} made`;
  };
  const builtIn = roles.filter(({ is_default }) => is_default).map((role) => [role.name, role.name] as const);
  return (
    <FormDialog title="New role" submit="Make" onSubmit={submit} {...ends}>
      <Field label="Name" isRequired {...field("name")} />
      <Choice
        label="Grants what this role may"
        {...field("base")}
        options={[["", "Nothing"], ...builtIn]}
        hint="Its policies deny single things of that."
      />
    </FormDialog>
  );
}

function DeleteRole({ scope, role, ...ends }: RoleDialogProps & { role: RoleData }) {
  const [isForced, setForced] = useState(false);
  return (
    <Confirm
      title={`Delete role ${plain(role.name)}?`}
      verb="Delete the role"
      act={() => deleteRole(scope, role.id, isForced)}
      done="Role deleted"
      {...ends}
    >
      <Check label="Take it off every user and key that has it" isChecked={isForced} onChange={setForced} />
    </Confirm>
  );
}

/** The deny policies of a role, to give it more or take some away. */
function RolePolicies({ scope, role, onDone, onClose }: RoleDialogProps & { role: RoleData }) {
  const { value, error, reload } = useLoaded(
    async (signal) => {
      const [own, all] = await Promise.all([
        policiesOfRole(scope, role.id, signal),
        listPolicies(scope, signal),
      ]);
      return { own, all };
    },
    [role.id],
  );
  const manages = may(scope.manages.roles);
  const [chosen, setChosen] = useState("");
  const change = async (act: () => Promise<unknown>, done: string) => {
    if (!(await attempt(act, done))) return;
    reload();
    onDone();
  };
  const others = value?.all.filter(({ id }) => !value.own.some((policy) => policy.id === id)) ?? [];
  return (
    <Dialog title={`Policies of ${plain(role.name)}`} onClose={onClose}>
      {error !== undefined && <Failure error={error} onRetry={reload} />}
      {value?.own.length === 0 && <Empty title="Nothing is denied" />}
      <ul class="plain-list">
        {value?.own.map(({ id, name }) => (
          <li key={id}>
            <Text of={name} href={hrefOf(["policies", id])} class="grows" />
            {manages && (
              <Button
                onClick={() => void change(() => unassignPolicy(scope, role.id, id), "Policy taken away")}
              >
                Take away
              </Button>
            )}
          </li>
        ))}
      </ul>
      {manages && others.length > 0 && (
        // Arrow keys choose each policy on the way: only the button gives one.
        <form
          class="inline-form"
          onSubmit={(event) => {
            event.preventDefault();
            void change(() => assignPolicy(scope, role.id, chosen), "Policy given");
            setChosen("");
          }}
        >
          <Choice
            label="Give it another"
            value={chosen}
            options={[["", "Choose a policy…"], ...others.map(({ id, name }) => [id, name] as const)]}
            onInput={setChosen}
          />
          <Button type="submit" text="Give" isDisabled={chosen === ""} />
        </form>
      )}
    </Dialog>
  );
}
