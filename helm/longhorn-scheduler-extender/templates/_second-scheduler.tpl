{{/* The second scheduler's configuration: it asks as render-scheduler-config has it, with files for keys. */}}
{{- define "lse.secondSchedulerConfig" -}}
{{- $values := .Values.secondScheduler }}
{{- $tls := ne .Values.tls.mode "insecure-plain-http" }}
{{- $host := printf "%s.%s.svc" (include "lse.extender" .) .Release.Namespace -}}
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection:
  qps: {{ $values.qps }}
  burst: {{ $values.burst }}
leaderElection:
  leaderElect: true
  resourceName: {{ $values.name }}
  resourceNamespace: {{ .Release.Namespace }}
percentageOfNodesToScore: {{ $values.percentageOfNodesToScore }}
profiles:
  - schedulerName: {{ $values.name }}
    {{- if $values.allPods }}
    pluginConfig:
      - name: NodeResourcesFit
        args:
          ignoredResources: [longhorn.io/scheduler-extender]
    {{- end }}
extenders:
  - urlPrefix: {{ $tls | ternary "https" "http" }}://{{ $host }}:9504
    filterVerb: filter
    prioritizeVerb: prioritize
    weight: 1
    preemptVerb: preempt
    {{- if .Values.bind.enabled }}
    bindVerb: bind
    {{- end }}
    {{- if $tls }}
    enableHTTPS: true
    tlsConfig:
      insecure: false
      serverName: {{ $host }}
      caFile: /etc/kube-scheduler-certificates/ca.crt
      certFile: /etc/kube-scheduler-certificates/tls.crt
      keyFile: /etc/kube-scheduler-certificates/tls.key
    {{- end }}
    nodeCacheCapable: true
    ignorable: {{ $values.ignorable }}
    httpTimeout: {{ $values.httpTimeout }}
    {{- if not $values.allPods }}
    managedResources:
      - name: longhorn.io/scheduler-extender
        ignoredByScheduler: true
    {{- end }}
{{- end }}
