import { rest } from "../lib/api.ts";
import { useLoaded } from "../lib/hooks.ts";
import { placeOf } from "../lib/router.ts";
import { self, viewer } from "../lib/session.ts";
import { Text } from "../ui/basics.tsx";
import { Icon } from "../ui/icons.tsx";

/** Says over every page that a user of the platform acts in the org of a tenant. */
export function Impersonation() {
  const known = viewer.value;
  const home = self.value;
  if (!known?.impersonates || !home) return null;
  return (
    <div class="impersonation" role="alert">
      <Icon name="alert" />
      <p>
        {"You act inside "}
        <OrgName id={known.org_id} />
        {" as the platform. Everything you do is written down."}
      </p>
      <a class="button" href={placeOf(home.org_id, "", ["tenants"])}>
        Leave
      </a>
    </div>
  );
}

function OrgName({ id }: { id: string }) {
  const { value } = useLoaded(
    (signal) => rest<{ name: string }>(`/api/v1/platform/tenants/${encodeURIComponent(id)}`, { signal }),
    [id],
  );
  return <Text of={value?.name ?? id} in="strong" />;
}
