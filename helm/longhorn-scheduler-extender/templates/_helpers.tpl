{{/* Our objects have fixed names: kube-scheduler's file, the policies and the program itself refer to them. */}}
{{- define "lse.extender" -}}longhorn-scheduler-extender{{- end }}
{{- define "lse.webhook" -}}longhorn-scheduler-webhook{{- end }}
{{- define "lse.replicaScheduler" -}}longhorn-replica-scheduler{{- end }}

{{/* Labels of an object that belongs to the program .of. */}}
{{- define "lse.labels" -}}
app.kubernetes.io/name: {{ .of }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with merge (dict) (.extra | default dict) .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Name, namespace unless .cluster is true, labels, annotations. .labels and .annotations are added. */}}
{{- define "lse.metadata" -}}
name: {{ .name }}
{{- if not .cluster }}
namespace: {{ .namespace | default .root.Release.Namespace }}
{{- end }}
labels:
  {{- include "lse.labels" (dict "root" .root "of" .of "extra" .labels) | nindent 2 }}
{{- with merge (dict) (.annotations | default dict) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The account .name as a subject of a binding. */}}
{{- define "lse.subjects" -}}
subjects:
  - kind: ServiceAccount
    name: {{ .name }}
    namespace: {{ .root.Release.Namespace }}
{{- end }}

{{- define "lse.username" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "lse.extender" . }}
{{- end }}

{{/* The whole name of an image: .image of the values, .registry where nobody names one, .tag where it has none; .part
    of the values, for errors. */}}
{{- define "lse.image" -}}
{{- $global := .root.Values.global }}
{{- $registry := coalesce .image.registry $global.imageRegistry $global.cattle.systemDefaultRegistry .registry
    | default "" }}
{{- if not $registry }}
{{- fail "image.registry: there is no published image; say where you pushed yours, as in registry.example.com/team" }}
{{- end }}
{{- if contains "://" $registry }}
{{- $name := ternary "global.imageRegistry" "global.cattle.systemDefaultRegistry" (not (empty $global.imageRegistry)) }}
{{- if .image.registry }}{{ $name = printf "%simage.registry" (.part | default "") }}{{ end }}
{{- fail (printf "%s: %s: a registry is named without a scheme, as in registry.example.com/team" $name $registry) }}
{{- end }}
{{- if regexMatch "[:@]" .image.repository }}
{{- fail (printf "image.repository: %s: the tag and the digest have values of their own" .image.repository) }}
{{- end }}
{{- $name := printf "%s/%s" (trimSuffix "/" $registry) .image.repository }}
{{- if .image.digest }}{{ $name }}@{{ .image.digest }}{{ else }}{{ $name }}:{{ .image.tag | default .tag }}{{ end }}
{{- end }}

{{/* The version of the cluster, without what vendors add to it. */}}
{{- define "lse.kubeVersion" -}}
{{- with semver .Capabilities.KubeVersion.Version }}v{{ .Major }}.{{ .Minor }}.{{ .Patch }}{{ end }}
{{- end }}

{{/* The fields of .all and, instead, those of .own; none that is null. */}}
{{- define "lse.fields" -}}
{{- $found := dict }}
{{- range list .all .own }}
{{- range $key, $value := . }}
{{- if kindIs "invalid" $value }}{{ $_ := unset $found $key }}{{ else }}{{ $_ := set $found $key $value }}{{ end }}
{{- end }}
{{- end }}
{{- toYaml $found }}
{{- end }}

{{/* What is the same for all pods. .of is the account, .values the program's part of the values. */}}
{{- define "lse.anyPodSpec" -}}
{{- with concat .root.Values.imagePullSecrets .root.Values.global.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
serviceAccountName: {{ .of }}
securityContext:
  {{- include "lse.fields" (dict "all" .root.Values.podSecurityContext "own" .values.podSecurityContext) | nindent 2 }}
{{- with .values.dnsPolicy | default (ternary "" "ClusterFirstWithHostNet" (empty .hostNetwork)) }}
dnsPolicy: {{ . }}
{{- end }}
{{- with .values.dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.hostAliases }}
hostAliases:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- $tolerations := .values.tolerations }}
{{- if .controlPlane }}
{{- $taint := dict "key" "node-role.kubernetes.io/control-plane" "operator" "Exists" "effect" "NoSchedule" }}
{{- $older := dict "key" "node-role.kubernetes.io/etcd" "operator" "Exists" "effect" "NoExecute" }}
{{- $tolerations = concat $tolerations (list $taint $older) }}
{{- end }}
{{- with $tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Of a Deployment's pods. .hostNetwork says whether they are on the host's. */}}
{{- define "lse.podSpec" -}}
{{- include "lse.anyPodSpec" (dict "root" .root "of" .of "values" .values "hostNetwork" .hostNetwork
    "controlPlane" .values.controlPlane) }}
{{- if .hostNetwork }}
hostNetwork: true
{{- end }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
affinity:
  {{- if .values.affinity }}
  {{- toYaml .values.affinity | nindent 2 }}
  {{- else }}
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          # Not the pods that a rolling update replaces: away from these, all new ones would go to one node.
          matchLabelKeys: [pod-template-hash]
          labelSelector:
            matchLabels:
              app.kubernetes.io/name: {{ .of }}
  {{- end }}
  {{- if and .values.controlPlane (not .values.affinity.nodeAffinity) }}
  nodeAffinity:
    {{- if eq .values.controlPlane "required" }}
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
        - matchExpressions:
            - {key: node-role.kubernetes.io/control-plane, operator: Exists}
    {{- else }}
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        preference:
          matchExpressions:
            - {key: node-role.kubernetes.io/control-plane, operator: Exists}
    {{- end }}
  {{- end }}
{{- with .values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- $selector := dict "labelSelector" (dict "matchLabels" (dict "app.kubernetes.io/name" $.of)) }}
  {{- range . }}
  - {{- merge (dict) . $selector | toYaml | nindent 4 }}
  {{- end }}
{{- end }}
terminationGracePeriodSeconds: {{ .values.terminationGracePeriodSeconds }}
{{- end }}

{{/* Labels and annotations of a Deployment's pods; nothing of the chart's version, which would make other pods. */}}
{{- define "lse.podMetadata" -}}
labels:
  app.kubernetes.io/name: {{ .of }}
  {{- with merge (dict) .values.podLabels .root.Values.commonLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) (.annotations | default dict) .values.podAnnotations .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* What is the same for all containers, after their environment. .values is the program's part of the values. */}}
{{- define "lse.anyContainer" -}}
{{- with .values.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- include "lse.fields" (dict "all" .root.Values.securityContext "own" .values.securityContext) | nindent 2 }}
{{- end }}

{{/* A probe: path and port, and the values' numbers. */}}
{{- define "lse.probe" -}}
httpGet: {path: {{ .path }}, port: metrics}
{{- with .values }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "lse.podDisruptionBudget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "lse.metadata" (dict "root" .root "name" .of "of" .of) | nindent 2 }}
spec:
  {{- with .values.podDisruptionBudget.maxUnavailable }}
  maxUnavailable: {{ . }}
  {{- else }}
  minAvailable: {{ .values.podDisruptionBudget.minAvailable | default 1 }}
  {{- end }}
  selector:
    matchLabels:
      app.kubernetes.io/name: {{ .of }}
{{- end }}

{{/* Names with commas; empty: as the program has it. The second scheduler's is one of them. */}}
{{- define "lse.schedulerNames" -}}
{{- $names := .Values.schedulerNames }}
{{- with .Values.secondScheduler }}
{{- if and .enabled (or $names (ne .name "longhorn-scheduler")) }}
{{- $names = append (default (list "default-scheduler") $names) .name | uniq }}
{{- end }}
{{- end }}
{{- join "," $names }}
{{- end }}

{{/* Flags that controller and webhook share. */}}
{{- define "lse.commonFlags" -}}
{{- with include "lse.schedulerNames" . }}
- {{ printf "--scheduler-names=%v" . | quote }}
{{- end }}
{{- with .Values.excludedNamespaces }}
- {{ printf "--excluded-namespaces=%v" (join "," .) | quote }}
{{- end }}
{{- if ne .Values.logLevel "info" }}
- {{ printf "--log-level=%v" .Values.logLevel | quote }}
{{- end }}
{{- if ne .Values.logFormat "text" }}
- {{ printf "--log-format=%v" .Values.logFormat | quote }}
{{- end }}
{{- end }}

{{/* The names of the Secrets, by what is in them, as JSON. */}}
{{- define "lse.secrets" -}}
{{- $tls := .Values.tls }}{{ $webhook := .Values.webhook.tls }}
{{- $names := dict "server" ($tls.secretName | default "longhorn-scheduler-extender-tls") }}
{{- $_ := set $names "client" ($tls.clientSecretName | default "longhorn-scheduler-extender-client") }}
{{- $_ := set $names "webhook" ($webhook.secretName | default "longhorn-scheduler-webhook-tls") }}
{{- $_ := set $names "webhookClient" ($webhook.clientSecretName | default "longhorn-scheduler-webhook-client-tls") }}
{{- $_ := set $names "leader" ($webhook.leaderSecretName | default "longhorn-replica-scheduler-tls") }}
{{- toJson $names }}
{{- end }}

{{/* Whether a live setting is on in the values. */}}
{{- define "lse.wakesWithAnnotation" -}}
{{- if eq (get .Values.settings "wake-with-annotation" | toString) "true" }}true{{ end }}
{{- end }}

{{/* Ends the rendering where values do not go together. */}}
{{- define "lse.check" -}}
{{- $values := .Values }}
{{- if and (eq $values.tls.mode "self") (or $values.tls.secretName $values.tls.clientSecretName) }}
{{- fail "tls.secretName, tls.clientSecretName: are for tls.mode cert-manager and provided" }}
{{- end }}
{{- with $values.webhook.tls }}
{{- if and (eq .mode "self") (or .secretName .clientSecretName .leaderSecretName) }}
{{- fail "webhook.tls.*SecretName: are for webhook.tls.mode cert-manager and provided" }}
{{- end }}
{{- end }}
{{- if and $values.bind.enabled (eq $values.tls.mode "insecure-plain-http") }}
{{- fail "bind.enabled: over plain HTTP anybody who reaches the port could have pods bound; use TLS" }}
{{- end }}
{{- if and $values.allocationRecord.inLonghornNodes (not $values.allocationRecord.enabled) }}
{{- fail "allocationRecord.inLonghornNodes: needs allocationRecord.enabled" }}
{{- end }}
{{- if and $values.networkPolicy.enabled (not $values.networkPolicy.controlPlaneCIDRs) }}
{{- fail "networkPolicy.controlPlaneCIDRs: say where kube-scheduler and kube-apiserver call from" }}
{{- end }}
{{- if and $values.controller.statusTls.secretName (not $values.controller.statusTls.port) }}
{{- fail "controller.statusTls.secretName: is for controller.statusTls.port, which is 0" }}
{{- end }}
{{- with $values.controller.leaderElection }}
{{- if le (int .leaseDurationSeconds) (int .renewDeadlineSeconds) }}
{{- fail "controller.leaderElection: leaseDurationSeconds has to be more than renewDeadlineSeconds" }}
{{- end }}
{{- if le (int .renewDeadlineSeconds) (int .retryPeriodSeconds) }}
{{- fail "controller.leaderElection: renewDeadlineSeconds has to be more than retryPeriodSeconds" }}
{{- end }}
{{- end }}
{{- range tuple "controller" "webhook" "secondScheduler" }}
{{- $part := get $values . }}
{{- if and $part.podDisruptionBudget.enabled (or (eq . "controller") $part.enabled) }}
{{- include "lse.checkBudget" (dict "part" . "replicas" (int $part.replicas) "budget" $part.podDisruptionBudget) }}
{{- end }}
{{- end }}
{{- if and $values.monitoring.podMonitor.enabled $values.monitoring.serviceMonitor.enabled }}
{{- fail "monitoring: podMonitor and serviceMonitor would both scrape every process; enable one of them" }}
{{- end }}
{{- if and $values.webhook.enabled $values.webhook.hostNetwork }}
{{- if and $values.networkPolicy.enabled (not $values.networkPolicy.nodeCIDRs) }}
{{- fail "networkPolicy.nodeCIDRs: with webhook.hostNetwork, say from which addresses of nodes it calls the leader" }}
{{- end }}
{{- end }}
{{- with $values.webhook.ports }}
{{- if lt (len (list (int .https) (int .metrics) (int .status) | uniq)) 3 }}
{{- fail "webhook.ports: two of them are the same" }}
{{- end }}
{{- end }}
{{- if and $values.tls.certDir (not (has $values.tls.mode (list "cert-manager" "provided"))) }}
{{- fail "tls.certDir: is for tls.mode cert-manager and provided" }}
{{- end }}
{{- with $values.webhook.tls }}
{{- if and .certDir (eq .mode "self") }}
{{- fail "webhook.tls.certDir: is for webhook.tls.mode cert-manager and provided" }}
{{- end }}
{{- if and .clientCertDir (not .certDir) }}
{{- fail "webhook.tls.clientCertDir: needs webhook.tls.certDir, too" }}
{{- end }}
{{- end }}
{{- /* Where Helm only renders, no namespace is found. */}}
{{- if and $values.requireLonghorn .Release.IsInstall (lookup "v1" "Namespace" "" "kube-system") }}
{{- $longhorn := .Capabilities.APIVersions.Has "longhorn.io/v1beta2" }}
{{- if $longhorn }}{{ $longhorn = (lookup "longhorn.io/v1beta2" "Setting" .Release.Namespace "").items }}{{ end }}
{{- if not $longhorn }}
{{- fail (printf "there is no Longhorn in the namespace %s: install this chart in Longhorn's, or set requireLonghorn=false"
    .Release.Namespace) }}
{{- end }}
{{- end }}
{{- if has $values.secondScheduler.name (list "default-scheduler"
    "longhorn-scheduler-extender" "longhorn-scheduler-webhook") }}
{{- fail "secondScheduler.name: is taken" }}
{{- end }}
{{- if and (hasKey $values "enabled") (not $values.enabled) }}
{{- fail "enabled: is for a chart that has this one as a dependency; helm uninstall removes it" }}
{{- end }}
{{- end }}

{{/* Ends the rendering where a PodDisruptionBudget keeps nodes from being drained. Percentages are rounded up. */}}
{{- define "lse.checkBudget" -}}
{{- $name := ternary "maxUnavailable" "minAvailable" (not (empty .budget.maxUnavailable)) }}
{{- if and .budget.minAvailable .budget.maxUnavailable }}
{{- fail (printf "%s.podDisruptionBudget: set minAvailable or maxUnavailable, not both" .part) }}
{{- end }}
{{- $said := get .budget $name | default 1 | toString }}
{{- $pods := trimSuffix "%" $said | int }}
{{- if hasSuffix "%" $said }}{{ $pods = div (add (mul $pods .replicas) 99) 100 }}{{ end }}
{{- $free := ternary $pods (sub .replicas $pods) (eq $name "maxUnavailable") }}
{{- if le (int $free) 0 }}
{{- fail (printf "%s.podDisruptionBudget.%s: with %s of %d replicas no node could be drained; lower it, or set %s.podDisruptionBudget.enabled=false"
    .part $name $said .replicas .part) }}
{{- end }}
{{- end }}

{{/* Of a pod that runs once: what is the same for all of them. .of is its account. */}}
{{- define "lse.jobSpec" -}}
{{- include "lse.anyPodSpec" (dict "root" .root "of" .of "values" .root.Values.controller) }}
restartPolicy: Never
volumes:
  - name: tmp
    emptyDir: {medium: Memory, sizeLimit: 16Mi}
{{- end }}

{{/* Its container, but for name and arguments. */}}
{{- define "lse.jobContainer" -}}
image: {{ include "lse.image" (dict "root" . "image" .Values.image "tag" .Chart.AppVersion) }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
env:
  - name: POD_NAMESPACE
    valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
{{- $resources := dict "requests" (dict "cpu" "50m" "memory" "64Mi") "limits" (dict "memory" "256Mi") }}
{{ include "lse.anyContainer" (dict "root" . "values" (dict "resources" $resources
    "securityContext" .Values.controller.securityContext)) | trim }}
volumeMounts:
  - name: tmp
    mountPath: /tmp
{{- end }}

{{- /* The status port on the network; empty where there is none, as over plain HTTP without a certificate for it. */}}
{{- define "lse.statusPort" -}}
{{- with .Values.controller.statusTls }}
{{- if and .port (or .secretName (ne $.Values.tls.mode "insecure-plain-http")) }}{{ .port }}{{ end }}
{{- end }}
{{- end }}
