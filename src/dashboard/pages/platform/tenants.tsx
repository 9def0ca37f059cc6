import type { Static } from "@sinclair/typebox";
import { useState } from "preact/hooks";
import type { OrgShape } from "../../../domain/access/platform/operations.ts";
import { rest } from "../../lib/api.ts";
import { counted, plain } from "../../lib/format.ts";
import { useFollowed, useLoaded } from "../../lib/hooks.ts";
import { placeOf } from "../../lib/router.ts";
import { may } from "../../lib/session.ts";
import { aboutRead, Button, Text, When } from "../../ui/basics.tsx";
import { type ChangeEnds, Confirm, Field, FormDialog, Opener, useFields } from "../../ui/dialog.tsx";
import { ResourceList } from "../../ui/resource.tsx";
import { MadeKey } from "../access/made-key.tsx";

type TenantData = Static<typeof OrgShape>;

const tenants = "/api/v1/platform/tenants";
/** Made with the installation, which keeps it. */
const firstTenant = "org_default";

/** Every tenant of the installation; a user of the platform looks into each as the platform. */
export function TenantsPage() {
  const read = useLoaded((signal) => rest<TenantData[]>(tenants, { signal }), []);
  const [made, setMade] = useState("");
  const [deleted, setDeleted] = useState<TenantData>();
  useFollowed(read.reload, { list: "tenants" });
  const manages = may("platform:tenants:manage");
  return (
    <ResourceList
      title="Tenants"
      about={aboutRead(read, (all) => counted(all.length, "organization"))}
      actions={
        manages && (
          <>
            <Opener kind="primary" icon="plus" text="New tenant…">
              {(onClose) => (
                <NewTenant
                  through={read.value?.[0]?.id ?? firstTenant}
                  onMade={setMade}
                  onDone={read.reload}
                  onClose={onClose}
                />
              )}
            </Opener>
            {made !== "" && <MadeKey text={made} onClose={() => setMade("")} />}
          </>
        )
      }
      read={read}
      keyOf={({ id }) => id}
      columns={[
        {
          name: "Tenant",
          of: ({ id, name }) => (
            <>
              <Text of={name} />
              <Text of={id} in="code" class="under" />
            </>
          ),
        },
        { name: "Made", isNumber: true, of: ({ created_at }) => <When at={created_at} /> },
        {
          name: "",
          of: (tenant) => (
            <span class="row-actions">
              {may("platform:impersonate:read") && (
                <a class="button" href={placeOf(tenant.id, "", ["overview"])}>
                  Look inside
                </a>
              )}
              {manages && tenant.id !== firstTenant && (
                <Button icon="trash" text="Delete…" onClick={() => setDeleted(tenant)} />
              )}
            </span>
          ),
        },
      ]}
      empty="No tenants"
    >
      {deleted && (
        <DeleteTenant tenant={deleted} onDone={read.reload} onClose={() => setDeleted(undefined)} />
      )}
    </ResourceList>
  );
}

function NewTenant(
  props: ChangeEnds & {
    /** The call that makes all at once wants an org to be named. */
    through: string;
    onMade: (key: string) => void;
  },
) {
  const { through, onMade, ...ends } = props;
  const [{ name, environment }, field] = useFields({ name: "", environment: "production" });
  const submit = async () => {
    const body = { org_name: name, ...(environment && { env_name: environment }) };
    const headers = { "X-Svc-Org": through };
    const path = "/api/v1/tenants/provision";
    onMade((await rest<{ api_key: { key: string } }>(path, { body, headers })).api_key.key);
  };
  return (
    <FormDialog title="New tenant" submit="Make" onSubmit={submit} {...ends}>
      <p>Makes the organization with a project, an environment and a key of its admin, all at once.</p>
      <Field label="Name" isRequired {...field("name")} />
      <Field label="First environment" {...field("environment")} />
    </FormDialog>
  );
}

function DeleteTenant({ tenant, ...ends }: ChangeEnds & { tenant: TenantData }) {
  const [{ typed }, field] = useFields({ typed: "" });
  const act = async () => {
    if (typed !== tenant.name) throw new Error("What you typed is not the tenant's name.");
    await rest(`${tenants}/${encodeURIComponent(tenant.id)}`, { method: "DELETE" });
  };
  return (
    <Confirm
      title={`Delete ${plain(tenant.name)}?`}
      verb="Delete the tenant"
      act={act}
      done="Tenant deleted"
      {...ends}
    >
      <p>Its users, keys, environments and everything in them go with it, and cannot be brought back.</p>
      <Field label="Type its name" isRequired {...field("typed")} />
    </Confirm>
  );
}
