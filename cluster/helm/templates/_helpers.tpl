{{- define "svc.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "svc.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "svc.labels" -}}
{{ include "svc.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "svc.secret" -}}
{{- default (include "svc.name" .) .Values.secret.name -}}
{{- end -}}

{{- define "svc.serviceAccount" -}}
{{- default (include "svc.name" .) .Values.serviceAccount.name -}}
{{- end -}}

{{- define "svc.scheme" -}}
{{- ternary "HTTPS" "HTTP" .Values.tls.enabled -}}
{{- end -}}

{{/* What no schema can say. */}}
{{- define "svc.check" -}}
{{- $values := .Values -}}
{{- if and (gt (int $values.nodes) 1) (eq $values.database "libsql") -}}
{{- fail "nodes: more than one needs `database: postgres`; libSQL is a file of one node" -}}
{{- end -}}
{{- if and $values.nats (eq $values.database "libsql") -}}
{{- fail "nats: is for several nodes, which need `database: postgres`" -}}
{{- end -}}
{{- if and $values.tls.enabled (empty $values.tls.secretName) -}}
{{- fail "tls.secretName: names the secret of type kubernetes.io/tls" -}}
{{- end -}}
{{- if not $values.metrics.enabled -}}
{{- range $name := list "serviceMonitor" "rules" "dashboard" -}}
{{- if (index $values.metrics $name).enabled -}}
{{- fail (printf "metrics.%s.enabled: needs `metrics.enabled: true`" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $name, $_ := $values.settings -}}
{{- if hasKey $values.secretSettings $name -}}
{{- fail (printf "settings.%s: stands in secretSettings, too" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Settings of every node that hold no secret. Those of `settings` come last: they win. */}}
{{- define "svc.settings" -}}
{{- $values := .Values -}}
{{- $own := dict
  "SVC_HOST" "0.0.0.0"
  "SVC_PORT" "9123"
  "SVC_GRPC_PORT" "9190"
  "SVC_METRICS_ENABLED" (toString $values.metrics.enabled)
  "SVC_AUDIT_SPOOL" "/var/lib/svc/audit"
  "SVC_BOOTSTRAP_KEY_FILE" "/var/lib/svc/bootstrap-key.json"
  "SVC_DRAIN_NOTICE_MS" (printf "%d" (int $values.drain.noticeMs))
  "SVC_DRAIN_MS" (printf "%d" (int $values.drain.ms))
  "LOG_FORMAT" "json"
-}}
{{- if $values.metrics.enabled -}}
{{- $_ := set $own "SVC_METRICS_PORT" (printf "%d" (int $values.metrics.port)) -}}
{{- end -}}
{{- if eq $values.database "libsql" -}}
{{- $_ := set $own "SVC_DB" "/var/lib/svc/svc.db" -}}
{{- end -}}
{{- if $values.ingress.enabled -}}
{{- /* Who reaches a node past the ingress can then claim any address: keep others away from the pods. */ -}}
{{- $_ := set $own "SVC_TRUST_PROXY" "true" -}}
{{- end -}}
{{- if $values.tls.enabled -}}
{{- $_ := set $own "SVC_TLS_CERT_FILE" "/etc/svc/tls/tls.crt" -}}
{{- $_ := set $own "SVC_TLS_KEY_FILE" "/etc/svc/tls/tls.key" -}}
{{- end -}}
{{- range $name, $value := $values.settings -}}
{{- $_ := set $own $name (toString $value) -}}
{{- end -}}
{{- range $name, $value := $own }}
{{ $name }}: {{ $value | quote }}
{{- end -}}
{{- end -}}
