// Prints where the structures of libibverbs have their fields, for layout_test.go.
#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdio.h>

#define SIZE(name, type) printf(#name " %zu\n", sizeof(struct type))
#define FIELD(name, type, field) printf(#name " %zu\n", offsetof(struct type, field))
#define VALUE(name, value) printf(#name " %ld\n", (long)(value))

int main(void)
{
	FIELD(contextPollCQ, ibv_context, ops.poll_cq);
	FIELD(contextNotifyCQ, ibv_context, ops.req_notify_cq);
	FIELD(contextPostSend, ibv_context, ops.post_send);
	FIELD(contextPostRecv, ibv_context, ops.post_recv);
	FIELD(contextAsyncFD, ibv_context, async_fd);
	FIELD(asyncType, ibv_async_event, event_type);
	FIELD(asyncPort, ibv_async_event, element.port_num);
	FIELD(qpNumber, ibv_qp, qp_num);
	FIELD(mrLocalKey, ibv_mr, lkey);
	FIELD(mrRemoteKey, ibv_mr, rkey);
	FIELD(channelFD, ibv_comp_channel, fd);
	SIZE(deviceAttrSize, ibv_device_attr);
	FIELD(deviceAttrPorts, ibv_device_attr, phys_port_cnt);
	VALUE(portAttrFits, sizeof(struct ibv_port_attr) <= 64);
	FIELD(portState, ibv_port_attr, state);
	FIELD(portActiveMTU, ibv_port_attr, active_mtu);
	FIELD(portGIDs, ibv_port_attr, gid_tbl_len);
	FIELD(portLID, ibv_port_attr, lid);
	FIELD(portLinkLayer, ibv_port_attr, link_layer);
	SIZE(gidEntrySize, ibv_gid_entry);
	FIELD(gidEntryType, ibv_gid_entry, gid_type);
	SIZE(sgeSize, ibv_sge);
	FIELD(sgeAddress, ibv_sge, addr);
	FIELD(sgeLength, ibv_sge, length);
	FIELD(sgeKey, ibv_sge, lkey);
	SIZE(sendSize, ibv_send_wr);
	FIELD(sendID, ibv_send_wr, wr_id);
	FIELD(sendNext, ibv_send_wr, next);
	FIELD(sendSGList, ibv_send_wr, sg_list);
	FIELD(sendSGCount, ibv_send_wr, num_sge);
	FIELD(sendOpcode, ibv_send_wr, opcode);
	FIELD(sendFlags, ibv_send_wr, send_flags);
	FIELD(sendImm, ibv_send_wr, imm_data);
	FIELD(sendRemoteAddr, ibv_send_wr, wr.rdma.remote_addr);
	FIELD(sendRemoteKey, ibv_send_wr, wr.rdma.rkey);
	SIZE(recvSize, ibv_recv_wr);
	FIELD(recvID, ibv_recv_wr, wr_id);
	FIELD(recvNext, ibv_recv_wr, next);
	FIELD(recvSGCount, ibv_recv_wr, num_sge);
	SIZE(wcSize, ibv_wc);
	FIELD(wcID, ibv_wc, wr_id);
	FIELD(wcStatus, ibv_wc, status);
	FIELD(wcBytes, ibv_wc, byte_len);
	FIELD(wcImm, ibv_wc, imm_data);
	SIZE(initAttrSize, ibv_qp_init_attr);
	FIELD(initSendCQ, ibv_qp_init_attr, send_cq);
	FIELD(initRecvCQ, ibv_qp_init_attr, recv_cq);
	FIELD(initMaxSend, ibv_qp_init_attr, cap.max_send_wr);
	FIELD(initMaxRecv, ibv_qp_init_attr, cap.max_recv_wr);
	FIELD(initMaxSendSGE, ibv_qp_init_attr, cap.max_send_sge);
	FIELD(initMaxRecvSGE, ibv_qp_init_attr, cap.max_recv_sge);
	FIELD(initMaxInline, ibv_qp_init_attr, cap.max_inline_data);
	FIELD(initType, ibv_qp_init_attr, qp_type);
	FIELD(initSignalAll, ibv_qp_init_attr, sq_sig_all);
	SIZE(qpAttrSize, ibv_qp_attr);
	FIELD(qpState, ibv_qp_attr, qp_state);
	FIELD(qpPathMTU, ibv_qp_attr, path_mtu);
	FIELD(qpRQPSN, ibv_qp_attr, rq_psn);
	FIELD(qpSQPSN, ibv_qp_attr, sq_psn);
	FIELD(qpDestNumber, ibv_qp_attr, dest_qp_num);
	FIELD(qpAccess, ibv_qp_attr, qp_access_flags);
	FIELD(qpAddress, ibv_qp_attr, ah_attr);
	FIELD(qpPKeyIndex, ibv_qp_attr, pkey_index);
	FIELD(qpMaxReads, ibv_qp_attr, max_rd_atomic);
	FIELD(qpMaxDestReads, ibv_qp_attr, max_dest_rd_atomic);
	FIELD(qpMinRNRTimer, ibv_qp_attr, min_rnr_timer);
	FIELD(qpPort, ibv_qp_attr, port_num);
	FIELD(qpTimeout, ibv_qp_attr, timeout);
	FIELD(qpRetries, ibv_qp_attr, retry_cnt);
	FIELD(qpRNRRetries, ibv_qp_attr, rnr_retry);
	FIELD(addressGID, ibv_ah_attr, grh.dgid);
	FIELD(addressGIDIndex, ibv_ah_attr, grh.sgid_index);
	FIELD(addressHopLimit, ibv_ah_attr, grh.hop_limit);
	FIELD(addressTraffic, ibv_ah_attr, grh.traffic_class);
	FIELD(addressLID, ibv_ah_attr, dlid);
	FIELD(addressGlobal, ibv_ah_attr, is_global);
	FIELD(addressPort, ibv_ah_attr, port_num);
	VALUE(statePortActive, IBV_PORT_ACTIVE);
	VALUE(linkEthernet, IBV_LINK_LAYER_ETHERNET);
	VALUE(gidRoCE2, IBV_GID_TYPE_ROCE_V2);
	VALUE(typeRC, IBV_QPT_RC);
	VALUE(opcodeWriteImm, IBV_WR_RDMA_WRITE_WITH_IMM);
	VALUE(flagSignaled, IBV_SEND_SIGNALED);
	VALUE(flagInline, IBV_SEND_INLINE);
	VALUE(stateInit, IBV_QPS_INIT);
	VALUE(stateRTR, IBV_QPS_RTR);
	VALUE(stateRTS, IBV_QPS_RTS);
	VALUE(accessLocalWrite, IBV_ACCESS_LOCAL_WRITE);
	VALUE(accessRemoteWrite, IBV_ACCESS_REMOTE_WRITE);
	VALUE(maskState, IBV_QP_STATE);
	VALUE(maskAccess, IBV_QP_ACCESS_FLAGS);
	VALUE(maskPKeyIndex, IBV_QP_PKEY_INDEX);
	VALUE(maskPort, IBV_QP_PORT);
	VALUE(maskAddress, IBV_QP_AV);
	VALUE(maskPathMTU, IBV_QP_PATH_MTU);
	VALUE(maskTimeout, IBV_QP_TIMEOUT);
	VALUE(maskRetries, IBV_QP_RETRY_CNT);
	VALUE(maskRNRRetries, IBV_QP_RNR_RETRY);
	VALUE(maskRQPSN, IBV_QP_RQ_PSN);
	VALUE(maskMaxReads, IBV_QP_MAX_QP_RD_ATOMIC);
	VALUE(maskMinRNRTimer, IBV_QP_MIN_RNR_TIMER);
	VALUE(maskSQPSN, IBV_QP_SQ_PSN);
	VALUE(maskMaxDestReads, IBV_QP_MAX_DEST_RD_ATOMIC);
	VALUE(maskDestNumber, IBV_QP_DEST_QPN);
	return 0;
}
