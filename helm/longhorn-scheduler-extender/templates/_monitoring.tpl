{{/* What a monitor looks at: the pods or Services that are called .of. */}}
{{- define "lse.monitored" -}}
selector:
  matchLabels:
    app.kubernetes.io/name: {{ .of }}
{{- if .root.Values.monitoring.namespace }}
namespaceSelector:
  matchNames: [{{ .root.Release.Namespace }}]
{{- end }}
{{- end }}

{{/* How it looks there. */}}
{{- define "lse.endpoint" -}}
{{- with .Values.monitoring -}}
- port: metrics
  interval: {{ .interval }}
  {{- with .scrapeTimeout }}
  scrapeTimeout: {{ . }}
  {{- end }}
  {{- with .relabelings }}
  relabelings:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .metricRelabelings }}
  metricRelabelings:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- end }}

{{/* The rules of files/alerts.yaml as they are wanted: those that can fire, with what the values change, as YAML. */}}
{{- define "lse.alerts" -}}
{{- $values := .Values.monitoring.prometheusRule }}
{{- $known := list }}
{{- $groups := list }}
{{- range $group := (.Files.Get "files/alerts.yaml" | fromYaml).groups }}
{{- $rules := list }}
{{- range $rule := $group.rules }}
{{- $known = append $known $rule.alert }}
{{- $mute := has $rule.alert $values.disabled }}
{{- if and (eq $rule.alert "LonghornSchedulerTooFewCopies") (lt (int $.Values.controller.replicas) 2) }}
{{- $mute = true }}
{{- end }}
{{- if and (eq $group.name "longhorn-scheduler-webhook") (not $.Values.webhook.enabled) }}
{{- $mute = true }}
{{- end }}
{{- if not $mute }}
{{- with $values.runbookUrl }}
{{- $_ := set $rule.annotations "runbook_url" (replace "docs/runbook.md" . $rule.annotations.runbook_url) }}
{{- end }}
{{- $rules = append $rules (mergeOverwrite $rule (get $values.overrides $rule.alert | default dict | deepCopy)) }}
{{- end }}
{{- end }}
{{- with $rules }}
{{- $groups = append $groups (dict "name" $group.name "rules" .) }}
{{- end }}
{{- end }}
{{- range concat $values.disabled (keys $values.overrides) }}
{{- if not (has . $known) }}
{{- fail (printf "monitoring.prometheusRule: there is no alert %s; docs/runbook.md has them" .) }}
{{- end }}
{{- end }}
{{- toYaml $groups }}
{{- end }}
